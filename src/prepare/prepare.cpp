#include "hasten/prepare/prepare.h"

#include <torch/torch.h>

#include "data/loader_checks.h"
#include "device/device.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "optim/distinct.h"
#include "prepare/placement.h"

namespace hasten::detail {

namespace {

// The type of double weights on the device: float, even if batches become bfloat16.
std::optional<at::ScalarType> double_weight_type(const Step& step) {
  return step.double_type_on_device ? std::make_optional(at::kFloat) : std::nullopt;
}

}  // namespace

void place_module(torch::nn::Module& module, const Step& step) {
  move_to_device(module, step.process.device, double_weight_type(step));
}

void place_optimizer(torch::optim::Optimizer& optimizer, const Step& step) {
  if (!device_of(step.process.device).traits().is_built_in)
    move_state(optimizer, step.process.device, double_weight_type(step));
}

void check_same_batches(std::optional<std::int64_t> batches, const Group& group) {
  const std::string text =
      str("a loader", batches ? str(" of ", *batches, " batches") : "", ", read by every process");
  check_same_loader(text,
                    "every process must read the same batches, of which it keeps its own. If each "
                    "process is meant to read its own batches, do not prepare() the loader",
                    group);
}

void check_optimizer(const torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups()) {
    if (!group.params().empty()) return;
  }
  throw UsageError(
      "prepare.empty-optimizer",
      {.what = "prepare(optimizer)",
       .got = "an optimizer without parameters",
       .hint = "construct it from model->parameters() after the model has been built"});
}

void drop_duplicates(torch::optim::Optimizer& optimizer) {
  TensorSet seen;
  for (auto& group : optimizer.param_groups()) group.params() = distinct(group.params(), seen);
}

}  // namespace hasten::detail
