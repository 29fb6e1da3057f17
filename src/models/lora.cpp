#include "hasten/models/lora.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/did_you_mean.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "models/lora_layers.h"

namespace hasten {
namespace {

constexpr const char* kAllLinear = "all-linear";

void check_options(const LoraOptions& options) {
  const auto throw_adapter_option = [](const std::string& name, const std::string& got,
                                       const char* expected) {
    throw UsageError(
        "models.lora-options",
        {.what = "the option " + name + " of an adapter", .got = got, .expected = expected});
  };
  if (options.r < 1) throw_adapter_option("r", str(options.r), "a rank of at least 1");
  if (!(options.dropout >= 0 && options.dropout < 1))
    throw_adapter_option("dropout", str(options.dropout), "a share from 0 to below 1");
  if (!std::isfinite(options.alpha)) throw_adapter_option("alpha", str(options.alpha), "a number");
}

// Returns the last parts of paths, without repetitions, as a user names layers.
std::vector<std::string> last_parts(const std::vector<std::string>& paths) {
  std::set<std::string> parts;
  for (const std::string& path : paths) parts.insert(path.substr(path.rfind('.') + 1));
  return {parts.begin(), parts.end()};
}

[[noreturn]] void throw_unmatched(const char* option, const std::string& entry,
                                  const std::string& expected,
                                  const std::vector<std::string>& paths) {
  std::vector<std::string> names = last_parts(paths);
  const std::string all = join(names, ", ");
  names.insert(names.end(), paths.begin(), paths.end());
  throw UsageError("models.lora-target",
                   {.what = str(option, " of an adapter"),
                    .got = str("'", entry, "', which matches nothing"),
                    .expected = str(expected, all.empty() ? ", and there is none" : ": " + all),
                    .hint = did_you_mean(nearest(entry, names))});
}

// Returns PEFT's default targets for the model. A model has one of these sets.
std::vector<std::string> default_targets(const std::vector<AdaptableLayer>& layers) {
  const auto has = [&](const std::string& name) {
    return std::any_of(layers.begin(), layers.end(),
                       [&](const AdaptableLayer& layer) { return matches_path(name, layer.path); });
  };
  for (const std::vector<std::string>& names : std::vector<std::vector<std::string>>{
           {"query", "value"}, {"q_proj", "v_proj"}, {"c_attn"}}) {
    if (std::all_of(names.begin(), names.end(), has)) return names;
  }
  throw UsageError("models.lora-target",
                   {.what = "target_modules of an adapter",
                    .got = "none, for a model without layers named query, q_proj or c_attn",
                    .expected = "names of linear layers",
                    .hint = str("name some of the layers, or ", kAllLinear)});
}

bool is_output_layer(const AdaptableLayer& layer) {
  return layer.is_shared || matches_path("lm_head", layer.path);
}

// Chooses the layers, and replaces "all-linear" in the options by their paths.
class Targets {
 public:
  Targets(const std::vector<AdaptableLayer>& layers, LoraOptions& options, bool is_lenient)
      : layers_(layers), options_(options) {
    for (const AdaptableLayer& layer : layers) paths_.push_back(layer.path);
    if (options.target_modules.empty()) options.target_modules = default_targets(layers);
    std::set<std::string> used;
    for (const AdaptableLayer& layer : layers) {
      if (matches(layer, used)) chosen_.push_back(&layer);
    }
    for (const std::string& entry : options.target_modules) {
      if (!used.contains(entry) && (!is_lenient || chosen_.empty()))
        throw_unmatched("target_modules", entry, "linear layers", paths_);
    }
    write_all_linear();
  }

  const std::vector<const AdaptableLayer*>& chosen() const { return chosen_; }

 private:
  bool matches(const AdaptableLayer& layer, std::set<std::string>& used) const {
    if (contains_path(options_.modules_to_save, layer.path)) return false;
    bool found = false;
    for (const std::string& entry : options_.target_modules) {
      if (entry == kAllLinear ? is_output_layer(layer) : !matches_path(entry, layer.path)) continue;
      used.insert(entry);
      found = true;
    }
    if (found && layer.is_shared) {
      throw UsageError("models.lora-target",
                       {.what = "the layer " + layer.path,
                        .got = "a weight that another module has, too",
                        .expected = "a layer with a weight of its own",
                        .hint = "leave out the layer: a tied output layer has no adapter"});
    }
    return found;
  }

  void write_all_linear() const {
    auto& entries = options_.target_modules;
    if (std::find(entries.begin(), entries.end(), kAllLinear) == entries.end()) return;
    entries.clear();
    for (const AdaptableLayer* const layer : chosen_) entries.push_back(layer->path);
  }

  const std::vector<AdaptableLayer>& layers_;
  LoraOptions& options_;
  std::vector<std::string> paths_;
  std::vector<const AdaptableLayer*> chosen_;
};

// Sets modules_to_save to the paths of the modules. As in PEFT, they include a classification head.
void find_saved_modules(const torch::nn::Module& module, LoraOptions& options, bool is_lenient) {
  std::vector<std::string> paths, found;
  for (const auto& item : module.named_modules("", /*include_self=*/false))
    if (!item.value()->parameters().empty()) paths.push_back(item.key());
  for (const std::string& entry : options.modules_to_save) {
    const std::size_t before = found.size();
    for (const std::string& path : paths)
      if (matches_path(entry, path)) found.push_back(path);
    if (found.size() == before && !is_lenient)
      throw_unmatched("modules_to_save", entry, "modules with parameters", paths);
  }
  if (options.task_type == "SEQ_CLS" || options.task_type == "TOKEN_CLS") {
    for (const char* const head : {"classifier", "score"}) {
      const bool exists = std::find(paths.begin(), paths.end(), head) != paths.end();
      if (exists && !contains_path(found, head)) found.push_back(head);
    }
  }
  options.modules_to_save = std::move(found);
}

// Freezes everything except the adapters and the parameters that the options train in addition.
void set_gradients(const torch::nn::Module& module, const LoraOptions& options) {
  const std::set<const void*> trained = adapter_parameters(module, options);
  for (const auto& item : module.named_parameters()) {
    const bool is_trained = trained.contains(item.value().unsafeGetTensorImpl());
    item.value().set_requires_grad(is_trained && item.value().is_floating_point());
  }
}

std::vector<LoraLayer> require_lora(const torch::nn::Module& module) {
  std::vector<LoraLayer> layers = lora_layers(module);
  if (!layers.empty()) return layers;
  throw UsageError("models.no-lora",
                   {.what = "module " + module.name(),
                    .got = "no adapters",
                    .expected = "a module that add_lora or load_lora has adapted"});
}

// Adds the product of the factors and the scale to each weight, or subtracts it if `merges` is
// false.
void change_weights(const torch::nn::Module& module, bool merges) {
  const std::vector<LoraLayer> layers = require_lora(module);
  if (layers.front().adapter->is_merged() == merges) {
    throw UsageError("models.lora-merged",
                     {.what = merges ? "merge_lora" : "unmerge_lora",
                      .got = merges ? "adapters that are merged" : "adapters that are not merged",
                      .expected = merges ? "adapters that are not merged" : "merged adapters"});
  }
  const torch::NoGradGuard no_grad;
  for (const LoraLayer& layer : layers) {
    at::Tensor weight = layer.weight;
    // The sum is computed in the type of the factors, and is rounded once to the type of the
    // weight.
    weight.add_(layer.adapter->delta(), merges ? 1 : -1);
    layer.adapter->set_merged(merges);
  }
}

}  // namespace

std::vector<std::string> attach_lora(torch::nn::Module& module, const LoraOptions& given,
                                     bool is_lenient) {
  check_options(given);
  if (has_lora(module)) {
    throw UsageError("models.lora-twice", {.what = "add_lora of module " + module.name(),
                                           .got = "a module with adapters",
                                           .expected = "one without",
                                           .hint = "call remove_lora first"});
  }
  const auto options = std::make_shared<LoraOptions>(given);
  find_saved_modules(module, *options, is_lenient);
  const std::vector<AdaptableLayer> layers = adaptable_layers(module);
  std::vector<std::string> paths;
  const Targets targets(layers, *options, is_lenient);
  for (const AdaptableLayer* const layer : targets.chosen()) {
    const auto adapter = std::make_shared<LoraAdapter>(layer->weight, layer->layout, options);
    layer->owner->register_module("lora_A", adapter->a());
    layer->owner->register_module("lora_B", adapter->b());
    adapter->a()->train(layer->owner->is_training());
    layer->set_weight(ops::with_adapter(layer->weight, layer->layout, adapter));
    paths.push_back(layer->path);
  }
  set_gradients(module, *options);
  return paths;
}

std::vector<std::string> add_lora(torch::nn::Module& module, const LoraOptions& options) {
  return attach_lora(module, options, /*is_lenient=*/false);
}

bool has_lora(const torch::nn::Module& module) { return !lora_layers(module).empty(); }

const LoraOptions& lora_options(const torch::nn::Module& module) {
  return *require_lora(module).front().adapter->options();
}

void merge_lora(torch::nn::Module& module) { change_weights(module, /*merges=*/true); }

void unmerge_lora(torch::nn::Module& module) { change_weights(module, /*merges=*/false); }

void remove_lora(torch::nn::Module& module) {
  require_lora(module);
  for (const AdaptableLayer& layer : adaptable_layers(module)) {
    if (ops::adapter_of(layer.weight) == nullptr) continue;
    const at::Tensor plain = ops::without_adapter(layer.weight);
    plain.set_requires_grad(layer.weight.requires_grad());
    layer.set_weight(plain);
    layer.owner->unregister_module("lora_A");
    layer.owner->unregister_module("lora_B");
  }
}

}  // namespace hasten
