#include "trainer/optimizer_of.h"

#include <torch/torch.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "hasten/models/training_traits.h"
#include "hasten/optim/adamw.h"

namespace hasten {

ParameterNames parameters_of(const torch::nn::Module& module) {
  ParameterNames out;
  std::set<const at::TensorImpl*> seen;
  for (const auto& item : module.named_parameters()) {
    if (seen.insert(item.value().unsafeGetTensorImpl()).second) out[item.key()] = item.value();
  }
  return out;
}

std::unique_ptr<torch::optim::Optimizer> optimizer_of(const TrainingArguments& args,
                                                      const torch::nn::Module& module,
                                                      const ParameterNames& parameters) {
  const std::set<std::string> undecayed = undecayed_parameters_of(module);
  std::vector<at::Tensor> decayed, plain;
  for (const auto& [name, parameter] : parameters) {
    if (parameter.requires_grad())
      (undecayed.count(name) > 0 ? plain : decayed).push_back(parameter);
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
