#include "hasten/models/training_traits.h"

#include <torch/torch.h>

#include <algorithm>

#include "hasten/base/text.h"
#include "hasten/models/recomputation.h"

namespace hasten {
namespace {

bool has_substring(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// Compares class names without namespaces and without the frontend's "Impl".
bool is_layer_norm(const torch::nn::Module& module) {
  if (dynamic_cast<const torch::nn::LayerNormImpl*>(&module)) return true;
  std::string name = lower(module.name());
  name = name.substr(name.rfind(':') + 1);
  if (ends_with(name, "impl")) name.resize(name.size() - 4);
  return ends_with(name, "layernorm") || ends_with(name, "rmsnorm");
}

// Returns the names of layer norms inside the module, each followed by a dot.
std::vector<std::string> layer_norms_in(const torch::nn::Module& module) {
  std::vector<std::string> found;
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    if (is_layer_norm(*item.value())) found.push_back(item.key() + ".");
  }
  return found;
}

}  // namespace

const TrainingTraits* traits_of(const torch::nn::Module& module) {
  return dynamic_cast<const TrainingTraits*>(&module);
}
TrainingTraits* traits_of(torch::nn::Module& module) {
  return dynamic_cast<TrainingTraits*>(&module);
}

bool is_undecayed_name(const std::string& parameter) {
  const std::string name = lower(parameter);
  if (has_substring(name, "bias") || has_substring(name, "layernorm") ||
      has_substring(name, "rmsnorm"))
    return true;
  const std::vector<std::string> parts = split(name, '.');
  return std::any_of(parts.begin(), parts.end(), [](const std::string& part) {
    return part == "norm" || ends_with(part, "_norm");
  });
}

std::optional<std::int64_t> tokens_in(const TensorDict& batch) {
  const auto ids = batch.find("input_ids");
  return ids == batch.end() ? std::nullopt : std::make_optional(ids->second.numel());
}

std::optional<std::int64_t> real_tokens_in(const TensorDict& batch) {
  const auto mask = batch.find("attention_mask");
  return mask == batch.end() ? tokens_in(batch)
                             : std::make_optional(mask->second.sum().item<std::int64_t>());
}

std::int64_t row_length_in(const TensorDict& batch) {
  const auto ids = batch.find("input_ids");
  return ids == batch.end() || ids->second.dim() < 2 ? 0 : ids->second.size(1);
}

std::set<std::string> undecayed_parameters_of(const torch::nn::Module& module) {
  if (const TrainingTraits* const traits = traits_of(module)) {
    if (auto own = traits->undecayed_parameters()) return *std::move(own);
  }
  const std::vector<std::string> norms = layer_norms_in(module);
  std::set<std::string> names;
  for (const auto& item : module.named_parameters()) {
    const std::string& name = item.key();
    const bool in_norm = std::any_of(norms.begin(), norms.end(), [&](const std::string& norm) {
      return starts_with(name, norm);
    });
    if (in_norm || is_undecayed_name(name)) names.insert(name);
  }
  return names;
}

}  // namespace hasten
