// File: trainer/trained_parameters.h (internal)
// The parameters of a module when a run begins. The optimizer trains these tensors, so the module
// has to keep them.
//
//   const TrainedParameters parameters(*model);
//   parameters.check_unchanged(*model, step);
//
// Thread rule: that of the module.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "hasten/checkpoint/detail/training_state.h"

namespace hasten {

class TrainedParameters {
 public:
  // Throws UsageError "trainer.no-parameters" if no parameter requires a gradient.
  explicit TrainedParameters(const torch::nn::Module& module);

  const ParameterNames& by_name() const { return by_name_; }
  // Returns the parameters that require a gradient now.
  std::vector<at::Tensor> with_gradients() const;
  // Throws UsageError "trainer.parameters-changed" if a parameter has been added, replaced or
  // removed, or requires a gradient only since then. A parameter that no longer requires a gradient
  // is left as it is.
  void check_unchanged(const torch::nn::Module& module, std::int64_t step) const;

 private:
  [[noreturn]] static void throw_unfrozen(const std::string& name, std::int64_t step);

  ParameterNames by_name_;
  std::set<std::string> frozen_;  // the names of the parameters that required no gradient
};

}  // namespace hasten
