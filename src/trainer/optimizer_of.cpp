#include "trainer/optimizer_of.h"

#include <torch/torch.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "hasten/base/text.h"
#include "hasten/optim/adamw.h"

namespace hasten {
namespace {

bool has_part(const std::string& text, const char* part) {
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

bool is_named_norm_or_bias(const std::string& parameter) {
  const std::string name = lower(parameter);
  if (has_part(name, "bias") || has_part(name, "layernorm") || has_part(name, "rmsnorm"))
    return true;
  const std::vector<std::string> parts = split(name, '.');
  return std::any_of(parts.begin(), parts.end(), [](const std::string& part) {
    return part == "norm" || ends_with(part, "_norm");
  });
}

}  // namespace

std::unique_ptr<torch::optim::Optimizer> optimizer_of(const TrainingArguments& args,
                                                      const torch::nn::Module& module,
                                                      const ParameterNames& parameters) {
  const std::vector<std::string> norms = layer_norms_in(module);
  const auto decays = [&](const std::string& name) {
    const bool in_norm = std::any_of(norms.begin(), norms.end(), [&](const std::string& norm) {
      return starts_with(name, norm);
    });
    return !in_norm && !is_named_norm_or_bias(name);
  };
  std::vector<at::Tensor> decayed, plain;
  for (const auto& [name, parameter] : parameters) {
    if (parameter.requires_grad()) (decays(name) ? decayed : plain).push_back(parameter);
  }
  const auto groups = [&](const auto& options) {
    std::vector<torch::optim::OptimizerParamGroup> out;
    for (const auto& [members, decay] :
         {std::pair{&decayed, args.weight_decay}, std::pair{&plain, 0.0}}) {
      auto own = options;
      own.weight_decay(decay);
      if (!members->empty())
        out.emplace_back(*members, std::make_unique<std::remove_cvref_t<decltype(options)>>(own));
    }
    return out;
  };
  if (args.optim == OptimizerName::sgd) {
    const torch::optim::SGDOptions options = torch::optim::SGDOptions(args.learning_rate)
                                                 .momentum(args.optim_args.number("momentum", 0))
                                                 .dampening(args.optim_args.number("dampening", 0))
                                                 .nesterov(args.optim_args.flag("nesterov", false));
    return std::make_unique<torch::optim::SGD>(groups(options), options);
  }
  const auto options = torch::optim::AdamWOptions(args.learning_rate)
                           .betas({args.adam_beta1, args.adam_beta2})
                           .eps(args.adam_epsilon);
  return std::make_unique<AdamW>(groups(options), options);
}

}  // namespace hasten
