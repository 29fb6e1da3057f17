#include "hasten/models/recomputation.h"

#include <fnmatch.h>

#include <algorithm>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/models/training_traits.h"

namespace hasten {
namespace {

struct NamedLayer {
  std::string path;
  std::shared_ptr<torch::nn::Module> module;
  RecomputableLayer* layer;
};

std::vector<NamedLayer> recomputable_layers(torch::nn::Module& module) {
  std::vector<NamedLayer> layers;
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    if (auto* const layer = dynamic_cast<RecomputableLayer*>(item.value().get()))
      layers.push_back({item.key(), item.value(), layer});
  }
  return layers;
}

// The statistics of batch norms, which a forward pass changes.
std::vector<at::Tensor> running_statistics(const torch::nn::Module& layer) {
  std::vector<at::Tensor> statistics;
  for (const auto& module : layer.modules(/*include_self=*/true)) {
    const auto buffers = module->named_buffers(/*recurse=*/false);
    if (!buffers.contains("running_mean")) continue;
    for (const auto& item : buffers) {
      if (item.value().defined()) statistics.push_back(item.value());
    }
  }
  return statistics;
}

CheckpointOptions options_for(const NamedLayer& layer, const Recomputation& wanted) {
  return {.policy = wanted.policy,
          .preserve_rng_state = wanted.preserve_rng_state,
          .offload = wanted.offload,
          .state = running_statistics(*layer.module)};
}

bool matches(const std::string& pattern, const std::string& path) {
  return fnmatch(pattern.c_str(), path.c_str(), 0) == 0;
}

[[noreturn]] void throw_no_layers(const torch::nn::Module& module) {
  throw UsageError(
      "models.no-recomputation",
      {.what = "recomputation (activation_checkpointing)",
       .got = "a module " + module.name() + " without layers that can be recomputed",
       .expected = "a model of hasten, an exported program, or layers that derive from "
                   "hasten::RecomputableLayer",
       .hint = "derive the class of the repeated layers from RecomputableLayer, or call "
               "hasten::checkpoint in forward() and leave out activation_checkpointing"});
}

}  // namespace

bool is_selected_path(const std::string& path, const std::vector<std::string>& patterns) {
  for (std::size_t end = path.find('.');; end = path.find('.', end + 1)) {
    const std::string above = path.substr(0, end);
    if (std::any_of(patterns.begin(), patterns.end(),
                    [&](const std::string& pattern) { return matches(pattern, above); }))
      return true;
    if (end == std::string::npos) return false;
  }
}

std::vector<std::string> select_layers(const std::vector<std::string>& paths,
                                       const Recomputation& wanted) {
  for (const std::string& pattern : wanted.modules) {
    if (std::any_of(paths.begin(), paths.end(),
                    [&](const std::string& path) { return is_selected_path(path, {pattern}); }))
      continue;
    throw UsageError("models.recomputed-modules",
                     {.what = "recomputation of modules",
                      .got = "the pattern '" + pattern + "', which matches no path",
                      .expected = "paths such as " + paths.front() + " and " + paths.back(),
                      .hint = "* stands for any text: encoder.layer.*"});
  }
  if (wanted.every_n_layers < 1) {
    throw UsageError("models.recomputed-modules", {.what = "every_n_layers of a recomputation",
                                                   .got = str(wanted.every_n_layers),
                                                   .expected = "1 or more"});
  }
  std::vector<std::string> selected;
  std::int64_t number = 0;
  for (const std::string& path : paths) {
    if (!wanted.modules.empty() && !is_selected_path(path, wanted.modules)) continue;
    if (number++ % wanted.every_n_layers == 0) selected.push_back(path);
  }
  return selected;
}

std::vector<std::string> set_recomputation(torch::nn::Module& module,
                                           const std::optional<Recomputation>& wanted) {
  if (TrainingTraits* const traits = traits_of(module)) {
    if (auto chosen = traits->set_recomputation(wanted)) return *std::move(chosen);
  }
  const std::vector<NamedLayer> layers = recomputable_layers(module);
  if (wanted && layers.empty()) throw_no_layers(module);
  std::vector<std::string> paths;
  for (const NamedLayer& each : layers) paths.push_back(each.path);
  const std::vector<std::string> selected =
      wanted ? select_layers(paths, *wanted) : std::vector<std::string>();
  for (const NamedLayer& each : layers) {
    const bool is_selected =
        std::find(selected.begin(), selected.end(), each.path) != selected.end();
    each.layer->set_checkpoint(is_selected ? std::optional(options_for(each, *wanted))
                                           : std::nullopt);
  }
  return selected;
}

}  // namespace hasten
