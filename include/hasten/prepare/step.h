// File: hasten/prepare/step.h
// Where a run stands inside its accumulation window: what the prepared objects of one Accelerator
// share.
//
// A window is the micro-batches whose gradients one optimizer step uses. It closes after
// gradient_accumulation_steps of them or with the last batch of the loader, whichever comes first,
// so it is never longer than the data. Each model (or group of models) handed to accumulate() has a
// window of its own; docs/design/003 says what belongs to it. Throws UsageError "prepare.*"
// (docs/errors.md). Thread rule: one thread at a time. Internal; users meet it through Accelerator.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "hasten/data/share.h"
#include "hasten/prepare/data_parallel.h"
#include "hasten/prepare/precision.h"
#include "hasten/prepare/step_observer.h"
#include "hasten/prepare/synchronization.h"
#include "hasten/process/group.h"
#include "hasten/process/logger.h"

namespace torch::nn {
class Module;
}

namespace hasten {

class DataParallel;
class Join;
class Window;
class Words;
struct JoinWord;
enum class JoinPass : std::int64_t;

// What a backward pass is to do besides; names and meaning are those of torch.autograd.backward.
struct BackwardOptions {
  // Keeps the graph for another pass. Unset: as create_graph.
  std::optional<bool> retain_graph;
  // Makes a graph of the pass, to differentiate the gradients again. Refused where gradients are
  // exchanged or divided afterwards ("prepare.create-graph"): take torch::autograd::grad there.
  bool create_graph = false;
  // The leaves that get gradients. Empty: all that the loss reaches.
  std::vector<at::Tensor> inputs;
};

// What a loader that is being iterated tells.
struct LoaderProgress {
  // No process has a batch after this one.
  bool at_last_batch = false;
  // Of the batch at hand in this process: its rows, and those of them that are no padding. -1: not
  // known, and all.
  std::int64_t rows = -1;
  std::int64_t real_rows = -1;
};

// What is beside the models of a training's state: a process that ran out of data takes it over
// from one that went on (hasten/prepare/join.h).
class Followed {
 public:
  virtual ~Followed() = default;
  virtual std::string state() const = 0;
  virtual void follow(const std::string& state) = 0;
};

class Step {
 public:
  Step(std::int64_t accumulation_steps, Precision precision, ProcessState process,
       Group group = Group::single(), DistributedDataParallelKwargs ddp = {});
  ~Step();

  // A model of this step: with several processes its gradients become those of all.
  void add_model(const std::shared_ptr<torch::nn::Module>& module);
  void before_forward(const torch::nn::Module* module);
  // What becomes of the model's gradients; gives what held before.
  Synchronization set_synchronization(const torch::nn::Module* module, Synchronization how);
  // The model's weights become their mean over the processes. A collective.
  void average(const torch::nn::Module* module);

  // A micro-batch of these models begins.
  void enter(const std::vector<std::shared_ptr<torch::nn::Module>>& models);
  void leave() { inside_ = false; }
  // Runs the backward pass; items < 0: micro-batches weigh equally. Closes the window where it
  // ends. Inside of accumulate() it leaves the gradients of prepared models that the scope was not
  // given as they are, and outside of it those of models with an open window.
  void backward(const at::Tensor& loss, double items, const BackwardOptions& options = {});

  // Whether the latest micro-batch is the last one of its window; true after a backward pass that
  // belongs to no window.
  bool sync_gradients() const;
  // Before something uses the gradients of these parameters as those of a step. False where a
  // window of theirs waits for more micro-batches. A window that is due and whose last micro-batch
  // had no backward pass is closed here. Throws "prepare.open-window", "prepare.raw-backward".
  bool complete(const std::vector<at::Tensor>& parameters);
  // Whether a window of this model waits for more micro-batches.
  bool waits(const torch::nn::Module* module) const;
  // Whether clearing these gradients now would lose part of an open window.
  bool window_is_open(const std::vector<at::Tensor>& parameters) const;
  // These gradients have been cleared.
  void cleared(const std::vector<at::Tensor>& parameters);
  // The gradients of the latest window have been used.
  void stepped();
  // Before the gradients of a step are computed again, by an optimizer that evaluates its closure
  // several times. Throws "prepare.closure-in-window".
  void begin_anew(const std::vector<at::Tensor>& parameters);
  // The loss that the latest backward pass computed gradients of: the mean over the processes where
  // it exchanged them, each with its weight. A collective there.
  at::Tensor loss_of_all(const at::Tensor& loss);
  // Warns once where a step of these parameters leaves some as they are that the losses inside of
  // accumulate() reach, because their model was not handed to it.
  void warn_of_untrained(const std::vector<at::Tensor>& parameters);
  // The model is none of this step's any more.
  void forget(const torch::nn::Module* module);
  // Lets go of all windows and of what they hold; models stay.
  void drop_windows();

  // The batch on the device, as its shapes and types have to be there; `rows`: those of a full one.
  TensorDict arriving(TensorDict batch, std::int64_t rows) const;
  // A type for a tensor that goes there, other than its own.
  std::optional<at::ScalarType> type_there(const at::Tensor& tensor) const;

  // From here on processes may run out of data (hasten/prepare/join.h). One that has calls end_join
  // and takes part in what the others do, until all have called it.
  void begin_join(const std::vector<torch::nn::Module*>& models, std::optional<bool> even_batches);
  void end_join();
  // Leaves the scope alone, where something was thrown.
  void abandon_join();
  // Whether processes may be at different steps.
  bool joins() const { return join_ != nullptr; }
  // Before something that every process with data does and one without cannot: throws UsageError
  // "prepare.join-call" where there is one.
  void require_all(const char* call);
  // Before tensors are gathered row by row: the rank that tells those without data what is
  // gathered, -1 if all have data.
  std::int64_t announce_rows();
  // Whether the last step of loaders is filled up.
  bool even_batches() const { return even_batches_here_.value_or(dataloader.even_batches); }

  std::int64_t accumulation_steps = 1;
  const Precision precision;
  const ProcessState process;
  const Group group;
  DataLoaderConfiguration dataloader;  // of loaders that are prepared from here on
  bool device_placement = true;        // what prepare() gives is on the device, batches too
  // What numbers in double become on the device. Unset: they stay.
  std::optional<at::ScalarType> double_there;
  bool trigger = false;  // Accelerator::set_trigger
  // Loaders being iterated, innermost last.
  std::vector<const LoaderProgress*> loaders;
  // Optimizers and schedulers, these first.
  std::vector<std::weak_ptr<Followed>> followed;
  // Who listens to this step.
  StepObservers observers;
  // Scopes under the Accelerator's precision so far; a backward pass under mixed precision without
  // any has lost its autocast.
  std::int64_t forwards = 0;

 private:
  struct Pass;  // one call of backward

  // Whether this pass concerns nobody else.
  bool is_alone(const Pass& pass) const;
  void backward_alone(const Pass& pass);
  void backward_together(const Pass& pass);
  void run(const Pass& pass, const at::Tensor& loss);
  // The gradients grow by those of the loss times `share`.
  void add_gradients(const Pass& pass, double share);
  // As add_gradients; then each gradient is summed over the processes, times `factor`. Without a
  // pass, or with a weight of zero, this process adds zeros.
  void reduce(const std::vector<DataParallel*>& models, const Pass* pass, double weight,
              double share, double factor);
  void exchange_pass(const Pass& pass);
  void exchange_at_end(const Pass& pass, bool first);
  void exchange_window(Window& window, const std::vector<DataParallel*>& models, const Pass* pass);
  double weight_of_all(double own, bool differs);
  bool tells_models(const Window& window) const;
  void close(Window& window, const std::vector<at::Tensor>& parameters);
  void exchange_remaining(Window& window, std::vector<DataParallel*> missing);
  void divide_alone(Window& window, const std::vector<at::Tensor>& parameters) const;
  void replace_windows_that_share(const std::vector<std::shared_ptr<torch::nn::Module>>& models);
  void check_left_window(const Window& window) const;
  void drop_left_windows(const Pass& pass);
  void check_options(const Pass& pass) const;
  void warn_of_16_bits(const at::Tensor& loss);
  // The leaves that a pass is restricted to; none: all that the loss reaches.
  std::vector<at::Tensor> inputs_of(const at::Tensor& loss, const BackwardOptions& options);
  std::vector<at::Tensor> parameters_left_alone() const;
  bool waits(const std::vector<at::Tensor>& parameters) const;
  void drop_dead();

  // In a process without data, what one with data is about to do.
  void shadow(const JoinWord& word);
  void shadow_backward(const JoinWord& word);
  void shadow_early(const std::vector<DataParallel*>& models, std::int64_t bits);
  Words& words();
  void say_backward(const std::vector<DataParallel*>& models, JoinPass pass, bool weighs);
  std::int64_t bits_of(const std::vector<DataParallel*>& models) const;
  std::vector<DataParallel*> models_of_bits(std::int64_t bits) const;
  std::shared_ptr<Window> open_window_of(const std::vector<DataParallel*>& models) const;
  static void clear_gradients(const std::vector<DataParallel*>& models);
  void take_over();
  // Of a window only its own models; of several those that the loss reaches.
  std::vector<DataParallel*> models_of(const Pass& pass) const;
  // Those of them that exchange gradients now.
  std::vector<DataParallel*> exchanging(const Pass& pass) const;
  // Those of a window that do so at its end.
  std::vector<DataParallel*> models_at_end(const Window& window) const;

  const DistributedDataParallelKwargs ddp_;
  std::shared_ptr<void> living_;                          // counted, for a refusal to fork
  std::vector<std::weak_ptr<torch::nn::Module>> models_;  // that were prepared
  std::vector<std::unique_ptr<DataParallel>> parallel_;   // the same, of several processes
  std::vector<std::shared_ptr<Window>> windows_;
  std::shared_ptr<Window> window_;  // that of the latest micro-batch; none: it had no window
  std::unique_ptr<Join> join_;      // inside of join_uneven_inputs
  std::unique_ptr<Words> words_;    // outside of it
  std::optional<bool> even_batches_here_;
  bool inside_ = false;  // of accumulate()
  // What the loss of the latest pass weighs among those of all processes; none: they exchanged
  // nothing.
  std::optional<double> share_of_all_;
  // Parameters that losses inside of accumulate() reached and left alone, until a step.
  std::unordered_set<const void*> left_alone_;
  Logger logger_;
};

}  // namespace hasten
