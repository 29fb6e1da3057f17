// File: trainer/step_graphs.h (internal)
// Runs the steps of a run that may have CUDA graphs (docs/design/024). There is one graph for each
// shape of a step's batches. It repeats the forward and backward passes of all micro-batches,
// clipping and the optimizer.
//
//   StepGraphs graphs(trainer, run);
//   if (graphs.is_on()) {
//     const bool replays = graphs.ensure_graph(step);
//     const DeferredScalar norm = replays ? graphs.replay(step) : graphs.compute_gradients(step);
//     run.optimizer.step();                   // after a replay it only counts the step
//   }
//
// The first steps run without a graph, because the optimizer makes its moments in them, and
// libraries their workspaces. A shape gets a graph when it occurs again. If a graph no longer fits
// the model or the optimizer, a step runs without a graph, and a later one is recorded. If a step
// cannot be recorded, the run logs the reason once and continues without graphs.
//
// If cuda_graph is not set, graphs must not change anything but the time. So rows are not padded. A
// shape gets a graph when it has occurred many times in a row and the device has room for it. Only
// models with classes of hasten or LibTorch have graphs. A reason against graphs is then logged for
// debugging.
//
// Thread rule: that of the Trainer.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "hasten/device/detail/deferred_scalar.h"
#include "optim/graphs_by_shape.h"
#include "trainer/run_parts.h"

namespace hasten {

// If cuda_graph is not set, a graph is recorded after this many consecutive steps of one shape.
inline constexpr std::int64_t kSteadySteps = 8;

// True if the device has room for a graph, which needs at most `peak` bytes in addition to ordinary
// steps and evaluations. `peak` is the peak of the process's tensors, and `used` counts all
// processes.
bool has_memory_for_graph(std::int64_t total, std::int64_t used, std::int64_t peak);

class Trainer::Impl::StepGraphs {
 public:
  // The micro-batches of a step.
  struct Step {
    std::vector<RealRows> batches;  // on the host
    std::vector<AnyBatch> inputs;   // the same batches on the device, as the model takes them
    std::vector<double> items;      // the number that the loss of each is a mean over
  };

  // Logs the reason if there are no graphs.
  StepGraphs(Impl& trainer, RunParts& run);

  // Returns whether the run makes its steps with this class.
  bool is_on() const { return graphs_.has_value(); }
  // If the run asks for graphs, returns the batch with rows that are padded to one of a few lengths
  // (hasten/data/detail/static_shapes.h), so that a few graphs suffice. The number of rows does not
  // change. A packed batch gets further rows (data/static_packed_rows.h).
  AnyBatch pad_to_bucket(const AnyBatch& batch) const;
  // Returns whether a graph runs this step. Records a graph if it is due.
  bool ensure_graph(const Step& step);
  // Runs the step with its graph, and marks it for the optimizer. Returns the norm of the
  // gradients.
  DeferredScalar replay(const Step& step);
  // Computes the gradients without a graph, and clips them. Returns their norm before clipping.
  DeferredScalar compute_gradients(const Step& step);

 private:
  // Everything that the operations of a step read and that changes from step to step, except what
  // the optimizer and dropout read.
  struct Operands {
    std::vector<AnyBatch> batches;
    std::vector<at::Tensor> items;    // in the type of the sum of losses
    std::vector<at::Tensor> weights;  // the same in float
    at::Tensor gradient_scale;        // 1 / the sum of the items
  };
  // True if the run asks for graphs. They may then pad rows, and a reason against them is a
  // warning.
  bool are_requested() const { return trainer_.args.cuda_graph.value_or(false); }
  // Returns why the run has no graphs, or an empty string if it may have them.
  std::string missing_reason() const;
  // Returns the same for callbacks, which may be added later.
  std::string reading_callback() const;
  // True if a step of this shape, which has no graph, is to be recorded.
  bool is_due(const std::string& shape);
  bool has_memory() const;
  // Logs the reason, and uses no graphs from now on.
  void stop(const std::string& reason);
  TrainedObjects trained_objects() const;
  // Returns operands for these batches. The numbers are not written yet.
  Operands operands_with(std::vector<AnyBatch> batches) const;
  void write_numbers(const Step& step, Operands& to) const;
  DeferredScalar run_operations(Operands& operands) const;

  Impl& trainer_;
  RunParts& run_;
  std::string unknown_class_;  // the first class of the model that is not hasten's or LibTorch's
  std::optional<GraphsByShape<Operands>> graphs_;  // unset if the run has no graphs
  std::map<std::string, std::int64_t> seen_;       // the steps of each shape without a graph
  std::set<std::string> dropped_;                  // the shapes whose graph no longer fitted
  std::int64_t steps_ = 0;                         // the steps of all shapes
  std::string latest_shape_;
  std::int64_t consecutive_steps_ = 0;  // the number of consecutive earlier steps with this shape
  bool has_reported_shapes_ = false;
};

}  // namespace hasten
