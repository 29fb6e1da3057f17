#include "hasten/prepare/detail/prepare.h"

#include <torch/torch.h>

#include "data/loader_checks.h"
#include "device/device.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "optim/distinct.h"
#include "prepare/accelerator_state.h"
#include "prepare/placement.h"

namespace hasten::detail {

namespace {

// Returns the type of double weights on the device. It is float, even if batches become bfloat16.
std::optional<at::ScalarType> double_weight_type(const AcceleratorState& state) {
  return state.placement.double_type ? std::make_optional(at::kFloat) : std::nullopt;
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

}  // namespace

void place_module(const AcceleratorState& state, torch::nn::Module& module) {
  move_to_device(module, state.process.device, double_weight_type(state));
}

std::shared_ptr<torch::nn::Module> prepare_module(
    AcceleratorState& state, const std::shared_ptr<torch::nn::Module>& module) {
  if (state.placement.moves) place_module(state, *module);
  // The Accelerator only has weak references to the model. If each handle of a module on the stack
  // had an owner of its own, the model would be forgotten with one of several handles.
  const auto known = state.saved.find_model(module.get());
  std::shared_ptr<torch::nn::Module> shared = known ? known : module;
  state.add_model(shared);
  state.saved.add_model(shared);
  state.observers.add_model(shared);
  return shared;
}

void prepare_optimizer(AcceleratorState& state, torch::optim::Optimizer& optimizer) {
  check_optimizer(optimizer);
  drop_duplicates(optimizer);
  if (!state.placement.moves) return;
  if (!device_of(state.process.device).traits().is_built_in)
    move_state(optimizer, state.process.device, double_weight_type(state));
}

LoaderSharding loader_sharding(const AcceleratorState& state) {
  return {.group = state.group,
          .configuration = state.loaders.configuration(),
          .elastic = state.elastic ? state.elastic->sharding() : ElasticSharding{}};
}

void check_same_batches(std::optional<std::int64_t> batches, const Group& group) {
  const std::string text =
      str("a loader", batches ? str(" of ", *batches, " batches") : "", ", read by every process");
  check_same_loader(text,
                    "every process must read the same batches, of which it keeps its own. If each "
                    "process is meant to read its own batches, do not prepare() the loader",
                    group);
}

}  // namespace hasten::detail
