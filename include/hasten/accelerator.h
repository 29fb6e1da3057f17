// File: hasten/accelerator.h
// Makes a plain LibTorch training loop run on any device and in any number of processes.
//
//   hasten::Accelerator accelerator({.mixed_precision = hasten::Precision::bf16});
//   auto [model, optimizer, train_loader] = accelerator.prepare(net, adamw, batches);
//   for (auto& batch : train_loader) {
//     optimizer.zero_grad();
//     auto logits = model(batch.data).to(torch::kFloat);  // a loss in bfloat16 would be rounded
//     accelerator.backward(loss_of(logits, batch.target));
//     optimizer.step();
//   }
//
// Accelerator is a facade: hasten/prepare holds the logic. Several Accelerators in one process are
// independent of each other. Defaults: float, no gradient accumulation, and the TPU of a machine
// that has one (docs/tpu.md), otherwise the GPU of the process's local rank, otherwise the CPU.
//
// Throws UsageError "prepare.*" and "track.*". The constructor also throws ConfigError
// "prepare.precision" and "process.backend", "track.unknown", "checkpoint.*" (project_config),
// "device.tpu-*", and what Group::form throws (hasten/process/group.h). Thread rule: one thread at
// a time per Accelerator. Source: the names and behaviour of Hugging Face Accelerate; docs/design/
// explains the differences.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "hasten/anatomy/anatomy.h"
#include "hasten/base/detail/export.h"
#include "hasten/data/detail/collectives.h"
#include "hasten/formats/module_weights.h"
#include "hasten/optim/gradients.h"
#include "hasten/prepare/detail/accelerator_options.h"
#include "hasten/prepare/detail/autocast.h"
#include "hasten/prepare/detail/exchange_hook.h"
#include "hasten/prepare/detail/join.h"
#include "hasten/prepare/detail/local_sgd.h"
#include "hasten/prepare/detail/open_window.h"
#include "hasten/prepare/detail/prepare.h"
#include "hasten/prepare/detail/save_state.h"
#include "hasten/prepare/detail/scopes.h"
#include "hasten/prepare/detail/training_step.h"
#include "hasten/process/detail/logger.h"
#include "hasten/process/detail/split.h"
#include "hasten/process/group.h"
#include "hasten/track/tracker.h"

namespace hasten {

// Options of a backward pass. Names and meanings match torch.autograd.backward.
struct BackwardOptions {
  // Keeps the graph for another pass. If unset, the value of create_graph applies.
  std::optional<bool> retain_graph = {};
  // Builds a graph of the pass, so that the gradients can be differentiated. Throws UsageError
  // "prepare.create-graph" if gradients are exchanged or divided afterwards: use
  // torch::autograd::grad in that case.
  bool create_graph = false;
  // The leaves that get gradients. If empty, all leaves that the loss depends on get them.
  std::vector<at::Tensor> inputs = {};
};

class TrackerSet;
struct ElasticPosition;
struct LossScalePosition;

class HASTEN_API Accelerator {
 public:
  // In a launched job this is a collective: it returns when all processes have called it.
  explicit Accelerator(AcceleratorOptions options = {});

  // Prepares the objects in the written order, which numbers them in checkpoints, and returns a
  // handle for each one, for structured bindings. An object is a module (a TORCH_MODULE holder, a
  // shared_ptr or an object on the stack), an optimizer, a learning-rate scheduler or a loader.
  // hasten/prepare/detail/prepare.h says which objects stay alive and what happens if an object is
  // prepared again, and hasten/prepare/detail/prepared.h what the handles do.
  template <class... Objects>
  auto prepare(Objects&&... objects) {
    // Braces, because C++ leaves the order open in which the arguments of a function are computed.
    return std::tuple<decltype(detail::prepare_one(std::forward<Objects>(objects), state_))...>{
        detail::prepare_one(std::forward<Objects>(objects), state_)...};
  }

  // Computes the gradients of the loss, a single number, and exchanges them between processes when
  // a window closes. It replaces loss.backward(); the arguments of loss.backward() are in the
  // options: `accelerator.backward(loss, {.retain_graph = true})`. All processes have equal
  // weights, and so have the micro-batches of a window inside accumulate(). The gradients are
  // divided once, when the window closes. The loss should be in float: under mixed precision the
  // outputs of a model are in 16 bits, so compute the loss under autocast(), which computes losses
  // in float, or from `logits.to(torch::kFloat)`. With fp16 the gradients stay scaled, as the loss
  // is, until they are clipped or used: see unscale_gradients().
  void backward(const at::Tensor& loss, const BackwardOptions& options = {});
  // Does the same with the loss weighted by the number of items (tokens, labels or rows) that it is
  // a mean over. A process without items passes 0 and contributes zeros.
  void backward(const at::Tensor& loss, double items, const BackwardOptions& options = {});

  // Begins a micro-batch of these models, which ends when the returned object is destroyed: `auto
  // guard = accelerator.accumulate(model);`. Pass every model that the losses inside train:
  // backward() does not change the gradients of other prepared models, so that models that train in
  // turn (a GAN) do not affect each other. docs/design/003 defines a window.
  template <class... Models>
  AccumulateScope accumulate(const Models&... models) {
    return AccumulateScope(state_, {models.unwrap()...});
  }
  // Scope in which backward() does not exchange the gradients of the model. Each process adds them
  // up, and a backward() after the scope exchanges them: `auto guard =
  // accelerator.no_sync(model);`.
  template <class Model>
  SynchronizationScope no_sync(const Model& model) const {
    return hold_back(model.unwrap().get());
  }
  // Scope in which every backward() exchanges the gradients of the model, even inside no_sync() and
  // before the end of a window. This includes gradients that were kept back. Before the end of the
  // window, the sum over the processes is divided by the number of processes. At the end of the
  // window, it is divided by the window's weight as usual.
  template <class Model>
  SynchronizationScope trigger_sync_in_backward(const Model& model) const {
    return exchange_now(model.unwrap().get());
  }
  // Scope in which processes may have different numbers of batches (hasten/prepare/detail/join.h):
  // `auto guard = accelerator.join_uneven_inputs(model);`, with options
  // `accelerator.join_uneven_inputs({.even_batches = false}, model)`.
  template <class... Models>
  JoinScope join_uneven_inputs(JoinOptions options, const Models&... models) {
    return JoinScope(state_, {static_cast<torch::nn::Module*>(models.unwrap().get())...}, options);
  }
  template <class... Models>
  JoinScope join_uneven_inputs(const Models&... models) {
    return join_uneven_inputs(JoinOptions{}, models...);
  }
  // True if the latest micro-batch closes its window. Also true after a backward() outside
  // accumulate().
  bool sync_gradients() const;
  // The mean loss of the latest closed window over all virtual ranks, weighted like its gradients.
  // It has the same bits for any number of processes, and is 0 before the first window closes.
  // Throws UsageError "prepare.elastic-loop" without AcceleratorOptions::elastic_ranks.
  double elastic_loss() const;
  // Returns the sum of one number per virtual rank, with the same bits for any number of processes.
  // Each process passes the numbers of its own virtual ranks, in order. A collective. Throws
  // UsageError "prepare.elastic-loop" as elastic_loss() does, and if the count of numbers is wrong.
  double elastic_sum(const std::vector<double>& of_own_ranks) const;
  // Returns what a checkpoint keeps of elastic ranks (hasten/checkpoint/detail/training_state.h);
  // unset if there are no elastic ranks. It is a collective if it is called before the first
  // micro-batch of a run. save_state() calls it.
  std::optional<ElasticPosition> elastic_position() const;
  // Restores the state of the random numbers from such a position. Throws ConfigError
  // "checkpoint.elastic" unless its run had the same number of virtual ranks and threads; `from`
  // names the source of the position in errors.
  void restore_elastic_position(const std::optional<ElasticPosition>& saved,
                                const std::filesystem::path& from);
  // Marks the gradients of the latest window as used. If the optimizer is not prepared, the loop
  // calls it after each step. Throws UsageError "prepare.scaled-losses" with fp16: prepare the
  // optimizer.
  void mark_gradients_used();
  // Returns the maximum number of micro-batches in a window, 1 without accumulation.
  std::int64_t gradient_accumulation_steps() const;
  // Sets the maximum number of micro-batches in a window, and drops open windows.
  void set_gradient_accumulation_steps(std::int64_t steps);
  // Returns the windows that are open in this process, and their gradients
  // (hasten/prepare/detail/open_window.h). Throws UsageError "prepare.elastic-loop" with elastic
  // ranks.
  OpenWindows open_windows() const;
  // Replaces the open windows. Prepare the models and optimizers as in the saved run before this
  // call. The position of the loader is restored separately. Gradients are rescaled to the scale of
  // this run's losses. `from` names the source of the windows in errors. Throws DataError
  // "checkpoint.window" and "checkpoint.gradients" before anything changes, and UsageError
  // "prepare.elastic-loop".
  void restore_windows(const OpenWindows& saved,
                       const std::filesystem::path& from = "restore_windows()");
  // Returns a function object that makes whole training steps, which a CUDA graph can repeat
  // (hasten/prepare/detail/training_step.h). `compute_loss` takes the module and a batch and
  // returns the loss; a module that computes its own loss needs none. Throws UsageError
  // "prepare.no-loss" if there is no function, "prepare.elastic-loop" with elastic ranks, and
  // "prepare.step-in-backward" if the steps clip and AcceleratorOptions::step_in_backward is set.
  template <class Model>
  TrainingStep training_step(const PreparedModel<Model>& model, const PreparedOptimizer& optimizer,
                             LossFunction compute_loss, const TrainingStepOptions& options = {}) {
    return TrainingStep(state_, model.unwrap(), optimizer, std::move(compute_loss), options);
  }
  template <class Model>
  TrainingStep training_step(const PreparedModel<Model>& model, const PreparedOptimizer& optimizer,
                             const TrainingStepOptions& options = {}) {
    return training_step(model, optimizer, detail::forward_of<Model>(), options);
  }
  // Calls the function in every process before the gradients of a window are exchanged
  // (hasten/prepare/detail/exchange_hook.h).
  ExchangeHook register_exchange_pre_hook(std::function<void()> function);

  // Scales the gradients so that their norm is at most max_norm, and returns the norm before
  // scaling. While a window of these parameters waits for more micro-batches, it does nothing and
  // returns 0. On a TPU the norm stays on the device until it is read.
  DeferredScalar clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm,
                                 double norm_type = 2.0);
  // Limits each element of the gradients to [-clip_value, clip_value]. While a window of these
  // parameters waits for more micro-batches, it does nothing.
  void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value);

  // With fp16, divides the gradients of all prepared optimizers by the scale of the loss. Call it
  // before you read gradients: clip_grad_norm_() and step() divide the gradients that it has not
  // divided. Gradients of an accumulation window that waits for more micro-batches stay as they
  // are. Gradients of tensors that no prepared optimizer has stay scaled.
  void unscale_gradients();
  // True if the latest step of a prepared optimizer was skipped, because its gradients were not
  // finite (fp16). Prepared schedulers do not advance in that case.
  bool optimizer_step_was_skipped() const;
  // With fp16, returns the scale of the loss and the number of skipped steps
  // (hasten/checkpoint/detail/training_state.h). Unset if losses are not scaled. save_state() saves
  // it automatically.
  std::optional<LossScalePosition> loss_scale() const;
  // Restores the scale from such a position. If `saved` is unset, resets it to the scale in the
  // options. Does nothing if losses are not scaled. Existing gradients keep their scale, so call it
  // before restore_windows().
  void restore_loss_scale(const std::optional<LossScalePosition>& saved);

  // Scope in which code outside a prepared model computes in the Accelerator's precision.
  AutocastGuard autocast() const;
  Precision mixed_precision() const;

  // Moves a batch that does not come from a prepared loader to the device, as the loader would, and
  // pads it if the device needs batches of few different shapes. `rows` is the number of rows of a
  // full batch; a smaller batch is padded to it. With 0, the batch keeps its rows.
  TensorDict to_device(TensorDict batch, std::int64_t rows = 0) const;
  // Does the same for a batch of any other type (hasten/data/batch.h), but does not pad it.
  template <class Batch>
  requires(!std::is_base_of_v<torch::nn::Module, Batch>) Batch to_device(Batch batch)
  const {
    std::vector<at::Tensor> tensors;
    for_each_tensor(batch, [&](at::Tensor& tensor) {
      tensor = on_device(tensor);
      tensors.push_back(tensor);
    });
    report_batch(tensors);
    return batch;
  }
  // Moves a module that is not prepared yet to the device, in place, as prepare() does.
  void to_device(torch::nn::Module& module) const;
  // The number of programs that the TPU's compiler has made for this process so far; 0 on a CPU or
  // GPU.
  std::int64_t compiled_programs() const;

  const ProcessState& process() const;
  at::Device device() const { return process().device; }
  bool is_main_process() const { return process().is_main_process(); }
  bool is_local_main_process() const { return process().is_local_main_process(); }
  bool is_last_process() const { return process().is_last_process(); }
  // Runs f in the job's main process only.
  void on_main_process(const std::function<void()>& f) const;
  // Runs f in the main process of each machine only.
  void on_local_main_process(const std::function<void()>& f) const;
  // Runs f in the process with the highest index only.
  void on_last_process(const std::function<void()>& f) const;
  // Runs f only in the process with this index, and nowhere if there is none.
  void on_process(std::int64_t process_index, const std::function<void()>& f) const;
  // Scope that the job's main process runs before the other processes.
  MainProcessFirst main_process_first() const { return {process(), group()}; }
  // Scope that the main process of each machine runs before the other processes.
  MainProcessFirst local_main_process_first() const { return {process(), group(), true}; }
  // See hasten/process/detail/logger.h.
  Logger get_logger(const std::string& name, LogLevel level = LogLevel::passive) const;
  // Prints the line on standard output in the main process of each machine.
  void print(const std::string& line) const;

  // The group of all processes. The functions from gather() to pad_across_processes(),
  // check_trigger() and wait_for_everyone() are collectives on it, so every process calls them.
  // They take a tensor or a whole batch (hasten/data/batch.h); hasten/process/group.h says what
  // each returns, such as [rows of all processes, ...] in rank order for gather().
  const Group& group() const;
  template <TensorBatch Batch>
  Batch gather(const Batch& batch) const {
    require_all_have_data("gather");
    return hasten::gather(group(), batch);
  }
  // Gathers without the rows that only pad the last step or a static shape, so that a metric counts
  // each row of the dataset once: `at::Tensor predictions =
  // accelerator.gather_for_metrics(logits.argmax(1));`. Every row appears once, in the order of the
  // dataset, for any length, batch size, number of processes and drop_last: each process knows
  // which of its rows are real (BatchInfo), so nothing is guessed from lengths. Throws UsageError
  // "prepare.not-rows" in every process if, in a step that is padded, a tensor does not have one
  // entry per row. If processes may have different numbers of batches (even_batches = false), call
  // it inside join_uneven_inputs: processes that have finished take part without rows and get no
  // result.
  template <TensorBatch Batch>
  Batch gather_for_metrics(Batch batch) const {
    visit_tensors(batch, [&](at::Tensor& tensor) { tensor = gather_real_rows(tensor); });
    return batch;
  }
  // Returns the rows of all processes in rank order. Unlike with gather(), the processes may have
  // different numbers of rows, so each can pass the rows that it has found: `all =
  // accelerator.gather_rows(boxes);`. All dimensions except the first are equal in all processes.
  at::Tensor gather_rows(const at::Tensor& rows) const;
  template <TensorBatch Batch>
  Batch reduce(const Batch& batch, Reduction reduction = Reduction::sum, double scale = 1.0) const {
    require_all_have_data("reduce");
    return hasten::reduce(group(), batch, reduction, scale);
  }
  template <TensorBatch Batch>
  Batch pad_across_processes(const Batch& batch, std::int64_t dim = 0, double pad_index = 0,
                             bool pad_first = false) const {
    require_all_have_data("pad_across_processes");
    return hasten::pad_across_processes(group(), batch, dim, pad_index, pad_first);
  }
  // Returns the part of this process; see hasten/process/detail/split.h.
  template <class Inputs>
  Inputs split_between_processes(const Inputs& inputs, bool apply_padding = false) const {
    return hasten::split_between_processes(inputs, process(), apply_padding);
  }
  // Makes the next check_trigger() true in every process.
  void set_trigger();
  // True in every process if any process has called set_trigger(), which it clears. A collective:
  // `if (accelerator.check_trigger()) break;`.
  bool check_trigger();
  // Blocks until every process has called it.
  void wait_for_everyone() const;

  // Starts the trackers of AcceleratorOptions::log_with with the configuration of the run:
  // `accelerator.init_trackers("sst2", {{"learning_rate", 2e-5}});`. Only the job's main process
  // records anything. A collective: if a tracker cannot be started there, all processes throw.
  void init_trackers(const std::string& project, const TrackedConfiguration& configuration = {});
  // Logs the values of an optimizer step to all trackers. Does nothing without log_with.
  void log(const TrackedScalars& values, std::int64_t step);
  // Returns the tracker of this name, for texts, histograms and images. In processes other than the
  // main process it records nothing.
  Tracker& get_tracker(const std::string& name);
  // Finishes all trackers. If it is not called, each tracker finishes in its destructor.
  void end_training();

  // Saves everything that is prepared (models, optimizers with their options, schedulers, positions
  // of loaders), the random generators of every process, the step counters, the open accumulation
  // windows with their gradients, and the registered objects, and returns the folder. Without an
  // argument, the folder is the next one of AcceleratorOptions::project_config. Call it at the end
  // of the loop's body, in every process: after optimizer.step(), also inside a window and in the
  // middle of an epoch. The folder appears complete or not at all (docs/durability.md), and
  // replaces a checkpoint of the same name. With {.asynchronous = true} it appears later. At most
  // one save is in flight: the next save and the Accelerator's destructor wait for it. If it fails,
  // a later step logs a warning and training continues. A collective. Throws UsageError
  // "checkpoint.open-window", "checkpoint.no-folder", "checkpoint.not-a-checkpoint",
  // "checkpoint.metric", "checkpoint.unknown-optimizer"; ConfigError "checkpoint.project-in-use";
  // IoError "io.*", after which training may continue.
  std::filesystem::path save_state(const std::filesystem::path& folder = {},
                                   const SaveStateOptions& options = {});
  // Waits for an asynchronous save, and throws in every process if the latest one has failed, even
  // if a step has logged the failure. Call it in every process.
  void wait_for_save();
  // Loads what save_state() has saved into the objects that are prepared and registered, after
  // checking every byte: the loop then continues as if it had never stopped. Call it before the
  // loop. A pass over a prepared loader begins after the batches that were used. Without a folder,
  // it loads the newest intact checkpoint of the project, sets damaged ones aside, and returns
  // false if the project has none yet: `accelerator.load_state();` then starts a new run. A
  // collective. Throws UsageError "checkpoint.other-objects", DataError "checkpoint.*",
  // "weights.mismatch".
  bool load_state(const std::filesystem::path& folder = {});
  // Makes the object's state a part of the checkpoints (hasten/prepare/detail/save_state.h).
  // save_state() reads the state in the main process only; load_state() restores it in every
  // process. The checkpoints of a Trainer have the objects and the functions below that were
  // registered on its Accelerator before train().
  template <class Object>
  void register_for_checkpointing(Object& object) {
    static_assert(
        detail::HasStateDict<Object> || detail::HasNumbers<Object>,
        "register_for_checkpointing takes an object with state_dict() and "
        "load_state_dict(), or with state() and set_state(): hasten/prepare/detail/save_state.h");
    add_object(std::make_shared<detail::SavedReference<Object>>(object));
  }
  // Calls the function in every process with the folder that save_state() writes to, before
  // anything else is written. Files that it writes there belong to the checkpoint.
  CheckpointHook register_save_state_pre_hook(CheckpointFunction function);
  // Calls the function in every process with the folder of load_state(), which has been verified,
  // before anything is loaded.
  CheckpointHook register_load_state_pre_hook(CheckpointFunction function);

  // The parts of save_state() and load_state() that concern what was registered, for a program that
  // writes its own checkpoints, as the Trainer does.

  // Calls the functions of register_save_state_pre_hook() with the folder of a checkpoint. Call it
  // in every process, before anything else is written.
  void call_save_hooks(const std::filesystem::path& folder) const;
  // Returns the states of the registered objects by the names of their files in a checkpoint:
  // `for (const auto& [name, state] : accelerator.registered_states())
  // save_safetensors(folder / name, state);`.
  std::map<std::string, TensorDict> registered_states() const;
  // Calls the functions of register_load_state_pre_hook() with the folder. Call it in every
  // process, before anything is loaded. Throws UsageError "checkpoint.other-objects" unless the
  // folder has the states of as many objects as are registered.
  void call_load_hooks(const std::filesystem::path& folder) const;
  // Restores the registered objects from the files in the folder, or from what registered_states()
  // has returned.
  void restore_registered_states(const std::filesystem::path& folder) const;
  void restore_registered_states(const std::map<std::string, TensorDict>& states) const;

  // Saves the weights of a prepared or plain model to a folder, or to a file that ends in
  // `.safetensors`, for Python and load_model(); see hasten/formats/module_weights.h. The main
  // process writes. A collective.
  template <class Model>
  void save_model(const Model& model, const std::filesystem::path& folder,
                  const SaveModuleOptions& options = {}) const {
    save_module(module_of(model), folder, options);
  }
  // Loads weights from such a folder or file in every process. A collective.
  template <class Model>
  IncompatibleNames load_model(const Model& model, const std::filesystem::path& folder,
                               const LoadModuleOptions& options = {}) const {
    return load_module(module_of(model), folder, options);
  }

  // Writes a Chrome trace of the operators that run until the returned object is destroyed.
  ProfileScope profile(const std::filesystem::path& trace) const { return ProfileScope(trace); }
  // Accounts for every byte and operation from now on; see hasten/anatomy/anatomy.h.
  Anatomy anatomy(AnatomyOptions options = {}) const;
  // Releases these handles and the exchange buffers of their models, and drops all accumulation
  // windows: `accelerator.free_memory(model, optimizer);`. An object that something else refers to
  // stays alive. The handles are empty afterwards, and calls of them throw UsageError
  // "prepare.empty-handle" until the program assigns them new handles from prepare(). Without
  // handles it only drops the windows, and every model stays prepared.
  template <class... Handles>
  void free_memory(Handles&... handles) {
    (release(handles), ...);
    drop_windows();
  }

 private:
  template <class Handle>
  void release(Handle& handle) {
    if constexpr (requires { static_cast<const torch::nn::Module*>(handle.unwrap().get()); }) {
      if (handle) remove_model(handle.unwrap().get());
    }
    handle.reset();
  }

  // The module of a handle, a holder, a pointer or a module.
  template <class Model>
  static torch::nn::Module& module_of(const Model& model) {
    const auto& module = [&]() -> const torch::nn::Module& {
      if constexpr (std::is_base_of_v<torch::nn::Module, Model>) {
        return model;
      } else {
        return *model;
      }
    }();
    return const_cast<torch::nn::Module&>(module);
  }
  void add_object(std::shared_ptr<SavedObject> object);
  void save_module(const torch::nn::Module& module, const std::filesystem::path& folder,
                   const SaveModuleOptions& options) const;
  IncompatibleNames load_module(torch::nn::Module& module, const std::filesystem::path& folder,
                                const LoadModuleOptions& options) const;

  SynchronizationScope hold_back(const torch::nn::Module* model) const;
  SynchronizationScope exchange_now(const torch::nn::Module* model) const;
  at::Tensor gather_real_rows(const at::Tensor& tensor) const;
  // Returns the tensor on the device, in the type that it gets there.
  at::Tensor on_device(const at::Tensor& tensor) const;
  // Reports the tensors of a batch that has been moved to the device.
  void report_batch(const std::vector<at::Tensor>& tensors) const;
  // Throws if a process has run out of data (hasten/prepare/detail/join.h).
  void require_all_have_data(const char* call) const;
  void remove_model(const torch::nn::Module* model);
  void drop_windows();

  friend class LocalSGD;
  std::shared_ptr<AcceleratorState> state_;
  std::shared_ptr<TrackerSet> trackers_;
  ProjectConfiguration project_;
};

// Seeds LibTorch's generators on all devices. With device_specific, process n of a job uses seed +
// n, so that each process draws its own dropout masks and noise. Without it, which is the default
// as in Accelerate, all processes draw the same numbers. This is right while models are built and
// data is divided; call it again with device_specific after that. The order of prepared loaders is
// the same in every process in both cases. A Trainer seeds each process with its own number.
HASTEN_API void set_seed(std::int64_t seed, bool device_specific = false);

}  // namespace hasten
