// File: optim/graphs_by_shape.h (internal)
// The device graphs of a loop: one for each shape of a step (docs/design/024). Each repeats the
// forward and backward passes of a step, and the step of the optimizer.
//
//   GraphsByShape<Operands> graphs(std::move(recorder), {device, *model, optimizer});
//   auto* const graph = graphs.contains(shape)
//                           ? graphs.find(shape)
//                           : graphs.record(
//                                 shape, size, [&] { return operands_of(batch); },
//                                 [&](Operands& operands) { return compute_gradients(operands); });
//   if (graph == nullptr) return run_without_graph(batch, graphs.failure());
//   write(batch, *graph->operands);
//   const std::vector<at::Tensor> results = graph->step->replay();
//   optimizer.step();  // only counts the step
//
// The graphs share the memory of their temporary tensors. A larger step does not fit into what a
// smaller one has left, so its recording drops the graphs of smaller steps, which are recorded
// again in the memory of the larger one. Otherwise each larger step would add all of its memory.
//
// Operands are the tensors that the operations read and that are written before each replay. If a
// graph no longer fits the model or the optimizer, it is dropped. Its step then runs without a
// graph, because the optimizer may have to create moments in it, and a later one is recorded.
//
// Thread rule: that of the optimizer; no other thread may use the device during a recording.
#pragma once

#include <c10/core/Event.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/graph_recorder.h"
#include "hasten/optim/detail/repeated_step.h"
#include "models/repeatable_model.h"
#include "ops/step_seeds.h"

namespace hasten {

// The objects that a step trains. They must outlive its graphs.
struct TrainedObjects {
  at::Device device;
  const torch::nn::Module& model;
  torch::optim::Optimizer& optimizer;  // it implements CapturableOptimizer
};

// Returns why no graph can repeat the steps of these objects in this process, or an empty string.
// Accelerator and Trainer have further reasons.
std::string missing_graph_reason(const TrainedObjects& objects);

// The graph of one step.
class StepGraph {
 public:
  struct Recording {
    std::unique_ptr<StepGraph> graph = nullptr;  // null if the recording failed
    std::string failure = "";                    // why it failed
  };

  // Records `compute`, which computes the gradients and returns the results of the step, and the
  // step of the optimizer.
  static Recording record(GraphRecorder& recorder, const TrainedObjects& objects,
                          const std::function<std::vector<at::Tensor>()>& compute);

  // Returns whether a replay would still be the correct next step.
  bool fits() const { return optimizer_step_->can_repeat() && model_.is_unchanged(); }
  // Runs the step, and marks it for the optimizer, whose next step() only counts it. The results
  // are overwritten by the next replay. Blocks until the device has completed the replay before
  // this one: one call starts a whole step, so the host would otherwise submit any number of steps
  // to a slower device, and each of them keeps a batch.
  const std::vector<at::Tensor>& replay();

 private:
  explicit StepGraph(const TrainedObjects& objects);
  void wait_for_previous_replay();

  const at::Device device_;
  ops::StepSeeds seeds_;
  std::unique_ptr<RepeatedStep> optimizer_step_;
  const ModelTensors model_;
  std::vector<at::Tensor> results_;
  std::unique_ptr<RecordedGraph> recorded_;
  std::optional<c10::Event> latest_replay_;  // unset before the first one, and on other devices
};

template <class Operands>
class GraphsByShape {
 public:
  // The number of steps before the first graph. In them the optimizer creates its moments, and
  // libraries allocate their workspaces.
  static constexpr std::int64_t kWarmupSteps = 3;
  // Each graph keeps the batch and the kernels of a shape.
  static constexpr std::size_t kMaxGraphs = 8;
  // Graphs that are recorded again and again cost more than they save.
  static constexpr std::size_t kMaxRecordings = 4 * kMaxGraphs;

  struct Graph {
    std::unique_ptr<Operands> operands;
    std::unique_ptr<StepGraph> step;
    std::int64_t size = 0;
  };

  GraphsByShape(std::unique_ptr<GraphRecorder> recorder, TrainedObjects objects)
      : recorder_(std::move(recorder)), objects_(objects) {}

  std::size_t size() const { return graphs_.size(); }
  bool is_full() const { return size() == kMaxGraphs; }
  bool contains(const std::string& shape) const { return graphs_.contains(shape); }
  // Returns the graph of this shape. Without one, or if it no longer fits, returns null. `fits` may
  // add a condition.
  Graph* find(const std::string& shape,
              const std::function<bool(const Operands&)>& fits = nullptr) {
    const auto found = graphs_.find(shape);
    if (found == graphs_.end()) return nullptr;
    Graph& graph = found->second;
    if (graph.step->fits() && (!fits || fits(*graph.operands))) return &graph;
    graphs_.erase(found);
    return nullptr;
  }
  // Records `compute` with the operands that `make` returns. `size` orders steps by the memory that
  // they need, for example the number of tokens. If the recording fails, returns null and sets
  // failure().
  template <class Make, class Compute>
  Graph* record(const std::string& shape, std::int64_t size, const Make& make,
                const Compute& compute) {
    failure_ = failure_before_recording();
    if (!failure_.empty()) return nullptr;
    drop_smaller(size);
    auto operands = std::make_unique<Operands>(make());
    StepGraph::Recording made =
        StepGraph::record(*recorder_, objects_, [&] { return compute(*operands); });
    failure_ = std::move(made.failure);
    if (!made.graph) return nullptr;
    return &(graphs_[shape] = {std::move(operands), std::move(made.graph), size});
  }
  // The graph of a shape that has one.
  Graph& at(const std::string& shape) { return graphs_.at(shape); }
  // Why the latest recording failed. Empty if it succeeded.
  const std::string& failure() const { return failure_; }

 private:
  // Drops all graphs if all of them are smaller. The memory of the last graph is returned only when
  // no graph is left.
  void drop_smaller(std::int64_t size) {
    for (const auto& [shape, graph] : graphs_) {
      if (graph.size >= size) return;
    }
    recordings_ -= std::min(recordings_, graphs_.size());  // they will be recorded again
    graphs_.clear();
  }
  std::string failure_before_recording() {
    if (const std::string hook = unrepeatable_hook(objects_.model); !hook.empty())
      return hook + ", which runs on the host";
    if (++recordings_ > kMaxRecordings)
      return "tensors of the model or the optimizer that are replaced again and again";
    return "";
  }

  const std::unique_ptr<GraphRecorder> recorder_;  // graphs must not outlive it
  const TrainedObjects objects_;
  std::map<std::string, Graph> graphs_;
  std::size_t recordings_ = 0;
  std::string failure_;
};

}  // namespace hasten
