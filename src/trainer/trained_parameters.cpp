#include "trainer/trained_parameters.h"

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "trainer/optimizer_builder.h"

namespace hasten {

TrainedParameters::TrainedParameters(const torch::nn::Module& module)
    : by_name_(parameters_of(module)) {
  for (const auto& [name, parameter] : by_name_) {
    if (!parameter.requires_grad()) frozen_.insert(name);
  }
  if (frozen_.size() < by_name_.size()) return;
  throw UsageError(
      "trainer.no-parameters",
      {.what = "train()",
       .got = by_name_.empty() ? "a module without parameters"
                               : "a module whose parameters all have requires_grad false",
       .expected = "a parameter to train",
       .hint = "register the layers of the module with register_module, and its own tensors "
               "with register_parameter"});
}

std::vector<at::Tensor> TrainedParameters::with_gradients() const {
  std::vector<at::Tensor> out;
  for (const auto& [name, parameter] : by_name_) {
    if (parameter.requires_grad()) out.push_back(parameter);
  }
  return out;
}

// The optimizer does not have this parameter, so the run would leave it as it is.
void TrainedParameters::throw_unfrozen(const std::string& name, std::int64_t step) {
  throw UsageError(
      "trainer.parameters-changed",
      {.what = str("parameter ", name, " at step ", step),
       .got = "requires_grad true",
       .expected = "false, as when train() was called",
       .hint = "set requires_grad before train(), or end the run and call train() again"});
}

void TrainedParameters::check_unchanged(const torch::nn::Module& module, std::int64_t step) const {
  const ParameterNames now = parameters_of(module);
  const auto throw_changed = [&](const std::string& name, const std::string& change) {
    throw UsageError(
        "trainer.parameters-changed",
        {.what = str("parameter ", name, " at step ", step),
         .got = change,
         .expected = "the parameters that the module had when train() was called",
         .hint = "create all parameters in the module's constructor, and change their values in "
                 "place, with copy_()"});
  };
  for (const auto& [name, parameter] : now) {
    const auto before = by_name_.find(name);
    if (before == by_name_.end()) throw_changed(name, "a new parameter");
    if (!before->second.is_same(parameter)) throw_changed(name, "another tensor");
    if (parameter.requires_grad() && frozen_.contains(name)) throw_unfrozen(name, step);
  }
  for (const auto& [name, parameter] : by_name_) {
    if (!now.contains(name)) throw_changed(name, "a module without it");
  }
}

}  // namespace hasten
