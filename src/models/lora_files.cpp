// Adapters in the files of PEFT: adapter_config.json and adapter_model.safetensors.
#include <torch/torch.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json_number.h"
#include "base/strict_json.h"
#include "formats/model_files.h"
#include "formats/model_manifest.h"
#include "formats/module_tensors.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/formats/safetensors.h"
#include "hasten/models/lora.h"
#include "models/lora_layers.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;
using LoraJson = nlohmann::json;

constexpr const char* kAdapterConfig = "adapter_config.json";
// PEFT's model contains the adapted model under this name.
constexpr const char* kPeftPrefix = "base_model.model.";

[[noreturn]] void throw_adapter_file(const fs::path& file, const std::string& what,
                                     const std::string& got, const std::string& expected,
                                     const std::string& hint = "") {
  throw DataError("models.lora-file", {.what = file.string() + (what.empty() ? "" : ", " + what),
                                       .got = got,
                                       .expected = expected,
                                       .hint = hint});
}

bool is_plain_name(const std::string& entry) {
  return std::all_of(entry.begin(), entry.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  });
}

// PEFT accepts a list of names, or one expression for the whole path.
LoraJson targets_json(const std::vector<std::string>& entries) {
  if (std::all_of(entries.begin(), entries.end(), is_plain_name)) return entries;
  std::vector<std::string> parts;
  for (const std::string& entry : entries) {
    std::string part;
    for (const char c : entry) part += is_plain_name(entry) && c == '.' ? "\\." : std::string(1, c);
    parts.push_back(is_plain_name(entry) ? "(.*\\.)?" + part : "(?:" + part + ")");
  }
  return join(parts, "|");
}

LoraJson name_or_null(const std::string& name) {
  return name.empty() ? LoraJson() : LoraJson(name);
}

// PEFT writes a whole number as an integer.
LoraJson alpha_json(double alpha) {
  const LoraJson number(alpha);
  const auto whole = whole_number_in(number);
  return whole ? LoraJson(*whole) : number;
}

std::string config_text(const LoraOptions& options, bool is_transposed) {
  const LoraJson config = {
      {"peft_type", "LORA"},
      {"task_type", name_or_null(options.task_type)},
      {"base_model_name_or_path", name_or_null(options.base_model)},
      {"r", options.r},
      {"lora_alpha", alpha_json(options.alpha)},
      {"lora_dropout", options.dropout},
      {"target_modules", targets_json(options.target_modules)},
      {"modules_to_save",
       options.modules_to_save.empty() ? LoraJson() : LoraJson(options.modules_to_save)},
      {"bias", std::string(name_of(options.bias))},
      {"use_rslora", options.use_rslora},
      {"fan_in_fan_out", is_transposed},
      {"inference_mode", true},
      {"init_lora_weights", true}};
  return config.dump(2) + "\n";
}

// Reads the keys of adapter_config.json.
class AdapterConfig {
 public:
  explicit AdapterConfig(const fs::path& file) : file_(file) {
    try {
      object_ = read_strict_json(file);
    } catch (const JsonError& error) {
      throw_adapter_file(file_, "", error.what(), "PEFT's file");
    }
    if (!object_.is_object())
      throw_adapter_file(file_, "", "text that is not a JSON object", "PEFT's file");
  }

  LoraOptions options() const {
    check_method();
    LoraOptions options;
    options.r = number("r", options.r);
    options.alpha = number("lora_alpha", options.alpha);
    options.dropout = number("lora_dropout", options.dropout);
    options.target_modules = names("target_modules");
    options.modules_to_save = names("modules_to_save");
    options.use_rslora = is_set("use_rslora") && value("use_rslora") == true;
    options.task_type = text("task_type");
    options.base_model = text("base_model_name_or_path");
    const std::string bias = text("bias");
    const auto known = from_name<LoraBias>(bias.empty() ? "none" : bias);
    if (!known) throw_adapter_file(file_, "key bias", bias, "none, all or lora_only");
    options.bias = *known;
    if (options.target_modules.empty())
      throw_adapter_file(file_, "key target_modules", "nothing", "names of layers");
    return options;
  }

 private:
  const LoraJson& value(const char* key) const { return object_.at(key); }
  // True if the key is present and not null, false, or empty.
  bool is_set(const char* key) const {
    if (!object_.contains(key)) return false;
    const LoraJson& found = value(key);
    if (found.is_null() || found == false) return false;
    return !(found.is_structured() || found.is_string()) || !found.empty();
  }

  // Refuses settings that would change the result and that hasten does not support.
  void check_method() const {
    if (text("peft_type") != "LORA")
      throw_adapter_file(file_, "key peft_type", text("peft_type"), "LORA");
    for (const char* key :
         {"use_dora", "use_qalora", "lora_bias", "rank_pattern", "alpha_pattern",
          "layer_replication", "layers_to_transform", "exclude_modules", "trainable_token_indices",
          "target_parameters", "alora_invocation_tokens", "megatron_config", "use_bdlora",
          "arrow_config", "kasa_config", "velora_config", "monteclora_config"}) {
      if (is_set(key))
        throw_adapter_file(file_, str("key ", key), value(key).dump(),
                           "an adapter without this option");
    }
    check_initialization();
  }

  // Other initializations (PiSSA, OLoRA, CorDA, LoftQ, LoRA-GA) change the weights of the model
  // when PEFT adds the adapter, so the adapter belongs to weights that the files do not have.
  void check_initialization() const {
    const char* const key = "init_lora_weights";
    if (!is_set(key) || value(key) == true) return;
    for (const char* const known : {"gaussian", "orthogonal", "eva"})
      if (value(key) == known) return;
    throw_adapter_file(
        file_, str("key ", key), value(key).dump(), "true, false, gaussian, orthogonal or eva",
        "convert the adapter with path_initial_model_for_weight_conversion of PEFT's "
        "save_pretrained");
  }

  template <class Number>
  Number number(const char* key, Number otherwise) const {
    if (!object_.contains(key) || value(key).is_null()) return otherwise;
    const bool fits = std::is_integral_v<Number>
                          ? value(key).is_number_integer() && whole_number_in(value(key))
                          : value(key).is_number();
    if (!fits) throw_adapter_file(file_, str("key ", key), value(key).dump(), "a number");
    return value(key).get<Number>();
  }

  std::string text(const char* key) const {
    if (!object_.contains(key) || value(key).is_null()) return "";
    if (!value(key).is_string())
      throw_adapter_file(file_, str("key ", key), value(key).dump(), "a text");
    return value(key).get<std::string>();
  }

  // Returns the entries of a list. A text counts as one entry.
  std::vector<std::string> names(const char* key) const {
    if (!object_.contains(key) || value(key).is_null()) return {};
    if (value(key).is_string()) return {value(key).get<std::string>()};
    std::set<std::string> found;
    bool fits = value(key).is_array();
    if (fits) {
      for (const LoraJson& entry : value(key)) {
        fits = fits && entry.is_string();
        if (entry.is_string()) found.insert(entry.get<std::string>());
      }
    }
    if (!fits) throw_adapter_file(file_, str("key ", key), value(key).dump(), "a list of names");
    return {found.begin(), found.end()};
  }

  const fs::path& file_;
  LoraJson object_;
};

// The tensors that belong to the adapters, with the names of the file.
TensorDict adapter_tensors(const torch::nn::Module& module) {
  const LoraTensorKinds parts(module, lora_options(module));
  TensorDict tensors;
  for (const auto& [name, tensor] : registered_tensors(module)) {
    const LoraTensorKind part = parts.of(name);
    if (part == LoraTensorKind::none) continue;
    const std::string owner = owner_of(name);
    // PEFT's layer contains the adapted layer.
    const bool is_inner = part == LoraTensorKind::bias && parts.is_adapted(owner);
    const std::string last = name.substr(owner.empty() ? 0 : owner.size() + 1);
    tensors[kPeftPrefix + (is_inner ? owner + ".base_layer." + last : name)] = tensor.detach();
  }
  return tensors;
}

void check_same(const fs::path& file, const TensorDict& own, const TensorDict& in_file) {
  std::vector<std::string> missing, unexpected;
  for (const auto& [name, tensor] : own) {
    const auto found = in_file.find(name);
    if (found == in_file.end()) {
      missing.push_back(name);
    } else if (found->second.sizes() != tensor.sizes()) {
      throw_adapter_file(file, "tensor " + name, "shape " + shape_text(found->second.sizes()),
                         shape_text(tensor.sizes()),
                         "check that the adapter belongs to this model");
    }
  }
  for (const auto& [name, tensor] : in_file)
    if (!own.contains(name)) unexpected.push_back(name);
  if (missing.empty() && unexpected.empty()) return;
  throw_adapter_file(file, "",
                     str(missing.empty() ? "" : "no tensor " + join(missing, ", "),
                         missing.empty() || unexpected.empty() ? "" : "; ",
                         unexpected.empty() ? "" : "the unknown tensors " + join(unexpected, ", ")),
                     "the tensors of the adapters", "check that the adapter belongs to this model");
}

// With bias "all", PEFT also writes its copies of the modules_to_save.
bool is_copy_of_saved_module(const std::string& name) {
  return name.find(".original_module.") != std::string::npos ||
         name.find(".modules_to_save.") != std::string::npos;
}

// The values of A and B have a meaning only with their scale. Another rank would be refused by the
// shapes of the tensors, too, but the message would not name the option.
void check_rank_and_scale(const fs::path& file, const LoraOptions& own,
                          const LoraOptions& in_file) {
  const std::string hint =
      "use the options of the file; a program can call remove_lora first, so that the file sets "
      "them";
  if (own.r != in_file.r) throw_adapter_file(file, "key r", str(in_file.r), str(own.r), hint);
  if (own.alpha != in_file.alpha)
    throw_adapter_file(file, "key lora_alpha", str(in_file.alpha), str(own.alpha), hint);
  if (own.use_rslora != in_file.use_rslora) {
    throw_adapter_file(file, "key use_rslora", in_file.use_rslora ? "true" : "false",
                       own.use_rslora ? "true" : "false", hint);
  }
}

void read_values(torch::nn::Module& module, const fs::path& file) {
  TensorDict in_file = load_safetensors(file);
  std::erase_if(in_file, [](const auto& entry) { return is_copy_of_saved_module(entry.first); });
  const TensorDict own = adapter_tensors(module);
  check_same(file, own, in_file);
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : own) at::Tensor(tensor).copy_(in_file.at(name));
}

std::set<std::string> trainable_parameter_names(const torch::nn::Module& module) {
  std::set<std::string> names;
  for (const auto& item : module.named_parameters())
    if (item.value().requires_grad()) names.insert(item.key());
  return names;
}

// The rank is the first size of every A. It is compared before adapters of that rank take memory.
void check_rank(const fs::path& config, std::int64_t rank, const fs::path& tensors) {
  const SafetensorsFile file(tensors);
  for (const std::string& name : file.names()) {
    const std::vector<std::int64_t> shape = file.info(name).shape;
    if (!ends_with(name, ".lora_A.weight") || (!shape.empty() && shape.front() == rank)) continue;
    throw_adapter_file(config, "key r", str(rank),
                       str("the rank of ", name, ", ", shape_text(shape)));
  }
}

// Adds adapters with the values of the file. If they do not fit, the module stays as it was, with
// the same tensors, which an optimizer may have.
void load_new_adapter(torch::nn::Module& module, const LoraOptions& options, const fs::path& file) {
  const std::set<std::string> trained = trainable_parameter_names(module);
  const std::vector<AdaptableLayer> before = adaptable_layers(module);
  attach_lora(module, options, /*is_lenient=*/true);
  try {
    read_values(module, file);
  } catch (...) {
    remove_lora(module);
    for (const AdaptableLayer& layer : before) layer.set_weight(layer.weight);
    for (const auto& item : module.named_parameters())
      item.value().set_requires_grad(trained.contains(item.key()));
    throw;
  }
}

}  // namespace

void save_lora(const torch::nn::Module& module, const fs::path& folder) {
  const LoraOptions& options = lora_options(module);
  make_directories(folder);
  const TensorDict tensors = adapter_tensors(module);
  with_model_manifest(folder, [&] { save_safetensors(folder / kAdapterFileName, tensors); });
  const bool is_transposed =
      lora_layers(module).front().adapter->layout() == ops::WeightLayout::in_out;
  write_file_atomically(folder / kAdapterConfig, config_text(options, is_transposed));
}

void load_lora(torch::nn::Module& module, const fs::path& folder) {
  for (const char* name : {kAdapterConfig, kAdapterFileName}) {
    if (fs::is_regular_file(folder / name)) continue;
    throw IoError("io.not-found", {.what = (folder / name).string() + ": no such file",
                                   .hint = "name a folder that save_lora or PEFT has written"});
  }
  const std::vector<LoraLayer> layers = lora_layers(module);
  const bool is_new = layers.empty();
  if (!is_new && layers.front().adapter->is_merged()) {
    throw UsageError("models.lora-merged", {.what = "load_lora",
                                            .got = "adapters that are merged into the weights",
                                            .expected = "adapters that are not merged",
                                            .hint = "call unmerge_lora first"});
  }
  verify_weights(folder, {kAdapterFileName});
  const fs::path config = folder / kAdapterConfig;
  const LoraOptions options = AdapterConfig(config).options();
  if (is_new) {
    check_rank(config, options.r, folder / kAdapterFileName);
    return load_new_adapter(module, options, folder / kAdapterFileName);
  }
  check_rank_and_scale(config, *layers.front().adapter->options(), options);
  read_values(module, folder / kAdapterFileName);
}

}  // namespace hasten
