#include "optim/graphs_by_shape.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "device/device.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/optim/adamw.h"
#include "optim/zero_grad.h"

namespace hasten {
namespace {

CapturableOptimizer* repeatable(torch::optim::Optimizer& optimizer) {
  return dynamic_cast<CapturableOptimizer*>(&optimizer);
}

// Clears the state that recorded operations, which did not run, have left on the host. The
// gradients are in the memory of the graph, so no parameter may keep one.
void drop_recorded_gradients(const TrainedObjects& objects) {
  zero_grad(objects.optimizer, /*set_to_none=*/true);
  for (const at::Tensor& each : objects.model.parameters()) each.mutable_grad().reset();
  if (auto* const scaling = dynamic_cast<GradientScalingOptimizer*>(&objects.optimizer))
    scaling->scale_next_step(1.0);
}

}  // namespace

std::string missing_graph_reason(const TrainedObjects& objects) {
  if (repeatable(objects.optimizer) == nullptr)
    return "an optimizer that does not implement CapturableOptimizer, as hasten::AdamW does";
  if (!device_of(objects.device).traits().defers_scalar_reads)
    return str("a device (", objects.device.str(), ") that has no graphs of operations");
  const std::string hook = unrepeatable_hook(objects.model);
  return hook.empty() ? "" : hook + ", which runs on the host";
}

StepGraph::StepGraph(const TrainedObjects& objects)
    : device_(objects.device),
      seeds_(objects.device),
      optimizer_step_(repeatable(objects.optimizer)->repeated_step()),
      model_(objects.model) {}

StepGraph::Recording StepGraph::record(GraphRecorder& recorder, const TrainedObjects& objects,
                                       const std::function<std::vector<at::Tensor>()>& compute) {
  Recording made;
  try {
    std::unique_ptr<StepGraph> graph(new StepGraph(objects));
    const ops::StepSeeds::Recording seeds(graph->seeds_);
    GraphRecorder::Recording recording = recorder.record([&] {
      graph->results_ = compute();
      graph->optimizer_step_->run();
      drop_recorded_gradients(objects);
      seeds.check_draws();
    });
    made.failure = std::move(recording.failure);
    graph->recorded_ = std::move(recording.graph);
    if (graph->recorded_) made.graph = std::move(graph);
  } catch (const Error& error) {
    made.failure = error.what();
  }
  drop_recorded_gradients(objects);
  if (!made.graph) made.failure = "a step that cannot be recorded: " + made.failure;
  return made;
}

const std::vector<at::Tensor>& StepGraph::replay() {
  seeds_.draw();
  optimizer_step_->write_numbers();
  recorded_->replay();
  wait_for_previous_replay();
  optimizer_step_->mark_replayed();
  return results_;
}

// The device does not wait meanwhile: it has the step that has just been submitted.
void StepGraph::wait_for_previous_replay() {
  if (!device_of(device_).traits().copies_in_background) return;  // it has no streams
  c10::Event replayed(device_.type());
  replayed.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  if (latest_replay_ && !latest_replay_->query()) latest_replay_->synchronize();
  latest_replay_.emplace(std::move(replayed));
}

}  // namespace hasten
