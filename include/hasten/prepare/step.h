// File: hasten/prepare/step.h
// The state of gradient accumulation and exchange that the prepared objects of one Accelerator
// share.
//
// A window is the micro-batches whose gradients one optimizer step uses. It closes after
// gradient_accumulation_steps of them or with the last batch of the loader, whichever comes first,
// so it is never longer than the data. Each model (or group of models) given to accumulate() has a
// window of its own; docs/design/003 defines what belongs to it. Throws UsageError "prepare.*"
// (docs/errors.md). Thread rule: one thread at a time. Internal; users reach it through
// Accelerator.
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
class MessageExchange;
struct JoinMessage;
enum class JoinPass : std::int64_t;

// Options of a backward pass. Names and meaning are those of torch.autograd.backward.
struct BackwardOptions {
  // Keeps the graph for another pass. Unset: the value of create_graph.
  std::optional<bool> retain_graph;
  // Builds a graph of the pass, so that the gradients can be differentiated. Throws UsageError
  // "prepare.create-graph" if gradients are exchanged or divided afterwards: use
  // torch::autograd::grad in that case.
  bool create_graph = false;
  // The leaves that get gradients. Empty: all that the loss reaches.
  std::vector<at::Tensor> inputs;
};

// The position of a loader that is being iterated.
struct LoaderProgress {
  // True if no process has a batch after this one.
  bool at_last_batch = false;
  // The rows of this process's current batch; -1: not known.
  std::int64_t rows = -1;
  // Those of its rows that are not padding; -1: all.
  std::int64_t real_rows = -1;
  // True if batches before the last one may be padded too, in this or another process.
  bool pads_every_batch = false;
};

// Training state besides the models, which a process that ran out of data copies from one that
// continued (hasten/prepare/join.h).
class SyncedState {
 public:
  virtual ~SyncedState() = default;
  // The state as bytes.
  virtual std::string state() const = 0;
  // Adopts the state of another process.
  virtual void restore(const std::string& state) = 0;
};

class Step {
 public:
  Step(std::int64_t accumulation_steps, Precision precision, ProcessState process,
       Group group = Group::single(), DistributedDataParallelKwargs ddp = {});
  ~Step();

  // Adds a model to this step. With several processes its gradients are summed over all of them
  // from now on; its weights become equal to rank 0's, and the call is a collective.
  void add_model(const std::shared_ptr<torch::nn::Module>& module);
  // Copies the buffers of one rank to all processes if the model's options ask for it. A collective
  // in that case.
  void sync_buffers(const torch::nn::Module* module);
  // Sets when the gradients of the model are exchanged; returns the previous value.
  Synchronization set_synchronization(const torch::nn::Module* module, Synchronization how);
  // Replaces the weights of the model by their mean over the processes. A collective.
  void average(const torch::nn::Module* module);

  // Begins a micro-batch of these models.
  void begin_micro_batch(const std::vector<std::shared_ptr<torch::nn::Module>>& models);
  void end_micro_batch() { inside_ = false; }
  // Runs the backward pass, and closes the window if it is due. items < 0: micro-batches have equal
  // weights. Inside accumulate() it does not change the gradients of prepared models that the scope
  // was not given, and outside it those of models with an open window.
  void backward(const at::Tensor& loss, double items, const BackwardOptions& options = {});

  // True if the latest micro-batch is the last one of its window, and after a backward pass that
  // belongs to no window.
  bool sync_gradients() const;
  // Call it before the gradients of these parameters are used for a step. Returns false if a window
  // of these parameters waits for more micro-batches. Closes a due window whose last micro-batch
  // had no backward pass. Throws "prepare.open-window", "prepare.raw-backward".
  bool close_due_windows(const std::vector<at::Tensor>& parameters);
  // True if a window of this model waits for more micro-batches.
  bool has_incomplete_window(const torch::nn::Module* module) const;
  // True if clearing these gradients now would lose a part of an open window.
  bool window_is_open(const std::vector<at::Tensor>& parameters) const;
  // Call it after these gradients have been cleared.
  void mark_cleared(const std::vector<at::Tensor>& parameters);
  // Call it after the gradients of the latest window have been used.
  void mark_gradients_used();
  // Call it before an optimizer that evaluates its closure several times computes the gradients of
  // a step again. Throws "prepare.closure-in-window".
  void restart_windows(const std::vector<at::Tensor>& parameters);
  // The loss whose gradients the latest backward pass computed. If the pass exchanged gradients,
  // this is the weighted mean over the processes, and the call is a collective.
  at::Tensor mean_loss(const at::Tensor& loss);
  // Warns once if a step of these parameters does not change some that the losses inside
  // accumulate() reach, because their model was not given to accumulate().
  void warn_about_untrained(const std::vector<at::Tensor>& parameters);
  // Removes the model from this step.
  void remove_model(const torch::nn::Module* module);
  // Drops all windows and what they hold; the models stay prepared.
  void drop_windows();

  // Moves the batch to the device, with the shapes and types that it needs there. `rows` is the
  // number of rows of a full batch.
  TensorDict place_batch(TensorDict batch, std::int64_t rows) const;
  // The type that the tensor gets on the device; unset: its own.
  std::optional<at::ScalarType> device_type_of(const at::Tensor& tensor) const;

  // From now on, processes may run out of data (hasten/prepare/join.h).
  void begin_join(const std::vector<torch::nn::Module*>& models, std::optional<bool> even_batches);
  // A process that has run out of data calls this. It takes part in what the others do until all
  // have called it.
  void end_join();
  // Ends the scope in this process only, after an exception.
  void abandon_join();
  // True between begin_join and its end, when processes may be at different steps.
  bool joins() const { return join_ != nullptr; }
  // Call it before a collective in which a process without data cannot take part. Throws UsageError
  // "prepare.join-call" if there is such a process.
  void require_all(const char* call);
  // Call it before tensors are gathered row by row. Returns the rank that describes the tensors to
  // the processes without data, or -1 if all have data.
  std::int64_t announce_rows();
  // True if the last step of a loader is filled up.
  bool even_batches() const { return join_even_batches_.value_or(dataloader.even_batches); }

  std::int64_t accumulation_steps = 1;
  const Precision precision;
  const ProcessState process;
  const Group group;
  // The configuration of loaders that are prepared from now on.
  DataLoaderConfiguration dataloader;
  // Whether prepared models and the batches of prepared loaders are moved to the device.
  bool device_placement = true;
  // The type that double numbers get on the device. Unset: they stay double.
  std::optional<at::ScalarType> double_type_on_device;
  // Set by Accelerator::set_trigger.
  bool trigger = false;
  // Loaders that are being iterated, the innermost last.
  std::vector<const LoaderProgress*> loaders;
  // Prepared schedulers, and after them prepared optimizers.
  std::vector<std::weak_ptr<SyncedState>> synced_states;
  StepObservers observers;
  // The number of scopes in the Accelerator's precision so far. A backward pass under mixed
  // precision while it is 0 belongs to a forward pass without autocast.
  std::int64_t forwards = 0;

 private:
  struct Pass;  // one call of backward

  // True if this pass exchanges nothing with other processes.
  bool is_local(const Pass& pass) const;
  void backward_local(const Pass& pass);
  void backward_distributed(const Pass& pass);
  void run(const Pass& pass, const at::Tensor& loss);
  // Adds the gradients of the loss times `share` to the gradients.
  void add_gradients(const Pass& pass, double share);
  // Does the same, then sums each gradient over the processes and multiplies it by `factor`. If the
  // pass is null or the weight zero, this process adds zeros.
  void reduce(const std::vector<DataParallel*>& models, const Pass* pass, double weight,
              double share, double factor);
  void exchange_pass(const Pass& pass);
  void exchange_at_end(const Pass& pass, bool first);
  void exchange_window(Window& window, const std::vector<DataParallel*>& models, const Pass* pass);
  double total_weight(double own, bool differs);
  bool announces_models(const Window& window) const;
  void close(Window& window, const std::vector<at::Tensor>& parameters);
  void exchange_remaining(Window& window, std::vector<DataParallel*> missing);
  void divide_local(Window& window, const std::vector<at::Tensor>& parameters) const;
  void replace_windows_that_share(const std::vector<std::shared_ptr<torch::nn::Module>>& models);
  void check_abandoned_window(const Window& window) const;
  void drop_abandoned_windows(const Pass& pass);
  void check_options(const Pass& pass) const;
  void warn_about_16_bits(const at::Tensor& loss);
  // The leaves to which a pass is restricted; empty: all that the loss reaches.
  std::vector<at::Tensor> inputs_of(const at::Tensor& loss, const BackwardOptions& options);
  std::vector<at::Tensor> excluded_parameters() const;
  bool has_incomplete_window(const std::vector<at::Tensor>& parameters) const;
  void drop_destroyed();

  // In a process without data: takes part in what a process with data is about to do.
  void participate_without_data(const JoinMessage& message);
  void participate_in_backward(const JoinMessage& message);
  void participate_in_early_exchange(const std::vector<DataParallel*>& models, std::int64_t bits);
  MessageExchange& message_exchange();
  void announce_backward(const std::vector<DataParallel*>& models, JoinPass pass,
                         bool sums_weights);
  std::int64_t model_bits(const std::vector<DataParallel*>& models) const;
  std::vector<DataParallel*> models_from_bits(std::int64_t bits) const;
  std::shared_ptr<Window> open_window_of(const std::vector<DataParallel*>& models) const;
  static void clear_gradients(const std::vector<DataParallel*>& models);
  void copy_state_from_last_rank();
  // The models of the window, or all models if there is no window. If there are several prepared
  // models, only those that the loss reaches.
  std::vector<DataParallel*> models_of(const Pass& pass) const;
  // The models of the pass that exchange gradients in this pass.
  std::vector<DataParallel*> models_to_exchange(const Pass& pass) const;
  // The models of a window that exchange gradients at its end.
  std::vector<DataParallel*> models_at_end(const Window& window) const;

  const DistributedDataParallelKwargs ddp_;
  // Marks a living Accelerator, so that notebook_launcher refuses to fork.
  std::shared_ptr<void> fork_hazard_;
  // The prepared models.
  std::vector<std::weak_ptr<torch::nn::Module>> models_;
  // The same models, if there are several processes.
  std::vector<std::unique_ptr<DataParallel>> parallel_;
  std::vector<std::shared_ptr<Window>> windows_;
  // The window of the latest micro-batch; null if it had none.
  std::shared_ptr<Window> window_;
  // Set inside join_uneven_inputs only.
  std::unique_ptr<Join> join_;
  // The messages before an exchange outside join_uneven_inputs; null before the first one.
  std::unique_ptr<MessageExchange> message_exchange_;
  // JoinOptions::even_batches inside join_uneven_inputs.
  std::optional<bool> join_even_batches_;
  // True inside accumulate().
  bool inside_ = false;
  // The weight of this process's latest loss as a share of that of all processes. Unset: the
  // processes exchanged nothing.
  std::optional<double> weight_share_;
  // Parameters that losses inside accumulate() have reached without training them since the last
  // step.
  std::unordered_set<const void*> excluded_parameters_;
  Logger logger_;
};

}  // namespace hasten
