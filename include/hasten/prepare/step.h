// File: hasten/prepare/step.h
// Where a run stands inside its accumulation window: what the prepared objects of one Accelerator
// share.
//
// A window is the micro-batches whose gradients one optimizer step uses. It closes after
// gradient_accumulation_steps of them or with the last batch of the loader, whichever comes first,
// so it is never longer than the data. Each model (or group of models) handed to accumulate() has a
// window of its own. Thread rule: one thread at a time. Internal; users meet it through
// Accelerator.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hasten/data/share.h"
#include "hasten/prepare/data_parallel.h"
#include "hasten/prepare/precision.h"
#include "hasten/prepare/step_observer.h"
#include "hasten/prepare/synchronization.h"
#include "hasten/process/group.h"

namespace torch::nn {
class Module;
}

namespace hasten {

class DataParallel;
class Join;
struct JoinWord;
enum class JoinPass : std::int64_t;

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
  void enter(const std::vector<void*>& models, const std::vector<at::Tensor>& parameters);
  void leave();
  // Runs the backward pass; items < 0: micro-batches weigh equally. Closes the window where it
  // ends.
  void backward(const at::Tensor& loss, double items);

  // The gradients are those of a whole window: optimizers step, schedules count, gradients may be
  // cleared.
  bool sync_gradients() const { return sync_; }
  // Whether clearing these gradients now would lose part of an open window.
  bool window_is_open(const std::vector<at::Tensor>& parameters) const;
  // The gradients of the latest window have been used.
  void stepped();
  // Lets go of all windows and of the parameters they know.
  void forget();

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
  struct Window {
    std::int64_t batches = 0;  // micro-batches whose backward pass has run
    double weight = 0;         // and the sum of their weights
    bool closed = false;  // an optimizer has used the gradients: the next micro-batch begins anew
    double weight_of_all = 0;  // over the processes, once it closes
    std::vector<at::Tensor> parameters;
  };

  // Whether this pass concerns nobody else.
  bool is_alone(const at::Tensor& loss) const;
  void backward_alone(const at::Tensor& loss, double items);
  void backward_together(const at::Tensor& loss, double items);
  // The loss times `share` goes backward; each gradient is summed over the processes, times
  // `factor`.
  void reduce(const std::vector<DataParallel*>& models, const at::Tensor& loss, double weight,
              double share, double factor);
  double weight_of_all(double own, bool by_items, const std::vector<DataParallel*>& models,
                       JoinPass pass);
  // In a process without data, what one with data is about to do.
  void shadow(const JoinWord& word);
  void shadow_backward(const JoinWord& word);
  void say_backward(const std::vector<DataParallel*>& models, JoinPass pass);
  std::int64_t bits_of(const std::vector<DataParallel*>& models) const;
  Window* open_window_of(const std::vector<DataParallel*>& models);
  static void clear_gradients(const std::vector<DataParallel*>& models);
  void take_over();
  // Of a window only its own models; of several those that the loss reaches.
  std::vector<DataParallel*> models_of(const at::Tensor& loss) const;
  // Those of them that exchange gradients now.
  std::vector<DataParallel*> exchanging(const at::Tensor& loss) const;

  const DistributedDataParallelKwargs ddp_;
  std::shared_ptr<void> living_;  // counted, for a refusal to fork
  std::vector<std::unique_ptr<DataParallel>> parallel_;
  std::map<std::vector<void*>, Window> windows_;
  Window* window_ = nullptr;  // that of the latest accumulate()
  std::vector<void*> window_models_;
  std::unique_ptr<Join> join_;  // inside of join_uneven_inputs
  std::optional<bool> even_batches_here_;
  bool inside_ = false;
  std::int64_t backwards_ = 0;  // in this micro-batch
  bool sync_ = true;
};

}  // namespace hasten
