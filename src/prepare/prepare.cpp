#include "hasten/prepare/prepare.h"

#include <torch/torch.h>

#include "data/loader_checks.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "prepare/placement.h"

namespace hasten::detail {

void place_module(torch::nn::Module& module, const Step& step) {
  if (step.process.device.is_cpu()) {
    for (const at::Tensor& parameter : module.parameters()) {
      if (!parameter.device().is_cpu()) module.to(step.process.device);
      return;  // a module lies on one device
    }
    return;
  }
  // LibTorch moves modules to its own kinds of devices only.
  if (step.process.device.is_privateuseone()) return move_module(module, step.process.device);
  module.to(step.process.device);
}

void place_optimizer(torch::optim::Optimizer& optimizer, const Step& step) {
  if (step.process.device.is_privateuseone()) move_state(optimizer, step.process.device);
}

void check_same_batches(std::optional<std::int64_t> batches, const Group& group) {
  const std::string text =
      str("a loader", batches ? str(" of ", *batches, " batches") : "", ", read by every process");
  check_same_loader(text,
                    "every process reads all batches and keeps each n-th. Batches that are a "
                    "process's own need no prepare()",
                    group);
}

void check_optimizer(const torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups()) {
    if (!group.params().empty()) return;
  }
  throw UsageError("prepare.empty-optimizer",
                   {.what = "prepare(optimizer)",
                    .got = "an optimizer without parameters",
                    .hint = "make it from model->parameters() after the model is built"});
}

}  // namespace hasten::detail
