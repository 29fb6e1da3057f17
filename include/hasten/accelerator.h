// File: hasten/accelerator.h
// The four lines that turn a plain LibTorch loop into one that runs anywhere.
//
//   hasten::Accelerator accelerator({.mixed_precision = hasten::Precision::bf16});
//   auto [model, optimizer, train_loader] = accelerator.prepare(net, adamw, batches);
//   for (auto& batch : train_loader) {
//     optimizer.zero_grad();
//     auto logits = model(batch.data).to(torch::kFloat);     // bfloat16 would round the loss
//     accelerator.backward(loss_of(logits, batch.target));
//     optimizer.step();
//   }
//
// The facade has no logic of its own: hasten/prepare holds it. Several Accelerators in one process
// are independent. Defaults: float, no accumulation, the TPU of a TPU machine (docs/tpu.md), else
// the first GPU where LibTorch has one, else the CPU. Thread rule: one thread at a time per
// Accelerator. Throws UsageError "prepare.*". Source: the names and behaviour of Hugging Face's
// Accelerate; where it differs, docs/design/ says why.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "hasten/anatomy/anatomy.h"
#include "hasten/data/collectives.h"
#include "hasten/optim/gradients.h"
#include "hasten/prepare/join.h"
#include "hasten/prepare/local_sgd.h"
#include "hasten/prepare/metrics.h"
#include "hasten/prepare/prepare.h"
#include "hasten/process/group.h"
#include "hasten/process/logger.h"
#include "hasten/process/split.h"

namespace hasten {

// Names as accelerate's.
struct InitProcessGroupKwargs {
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  // to meet, and of each collective
  // After that limit: reports the late rank and ends the job. Also off by HASTEN_WATCHDOG=off.
  bool watchdog = true;
  // Of the tensors of a GPU: NCCL where every process can load it, else Gloo by way of the CPU. Of
  // a TPU: tpu_dist, or Gloo, slowly, where PCI shows no TPU. Also by
  // HASTEN_PROCESS_GROUP_BACKEND=gloo, tpu_dist, nccl for a program that leaves it open.
  ProcessGroupBackend backend = ProcessGroupBackend::automatic;
  // Of the tensors of the CPU: sums, gathers and broadcasts of the processes of one machine in
  // memory that they share, not by Gloo's messages. Also off by HASTEN_SHARED_MEMORY=off.
  bool shared_memory = true;
  // What ranks of different machines say to each other is encrypted; unset: HASTEN_ENCRYPT, or else
  // where the job has a token (hasten/process/group.h).
  std::optional<bool> encrypt;
};

struct AcceleratorOptions {
  // Unset: as hasten launch was told (ACCELERATE_MIXED_PRECISION), else none.
  std::optional<Precision> mixed_precision;
  std::int64_t gradient_accumulation_steps = 1;  // micro-batches a window, at most
  bool cpu = false;                              // the CPU even where there is a GPU or a TPU
  // A TPU, or an error that says what is missing; also by ACCELERATE_USE_TPU=true. A machine that
  // has one uses it unasked. Throws as docs/errors.md says under "device.tpu-*".
  bool tpu = false;
  // With bf16 on a TPU: batches' numbers in double become float there, not bfloat16; also by
  // ACCELERATE_DOWNCAST_BF16=true. docs/tpu.md.
  bool downcast_bf16 = false;
  bool device_placement = true;  // prepare() moves models to the device, and loaders' batches
  // With several processes; see hasten/prepare/data_parallel.h.
  DistributedDataParallelKwargs ddp;
  DataLoaderConfiguration dataloader_config;  // hasten/data/share.h
  InitProcessGroupKwargs process_group;
  // Compares each collective over the processes before it runs; also by ACCELERATE_DEBUG_MODE.
  bool debug = false;
};

// One micro-batch of some models; see Accelerator::accumulate.
class [[nodiscard]] Accumulate {
 public:
  Accumulate(std::shared_ptr<Step> step,
             const std::vector<std::shared_ptr<torch::nn::Module>>& models);
  Accumulate(const Accumulate&) = delete;
  Accumulate& operator=(const Accumulate&) = delete;
  ~Accumulate();

 private:
  std::shared_ptr<Step> step_;
};

// See Accelerator::no_sync and Accelerator::trigger_sync_in_backward.
class [[nodiscard]] SynchronizationScope {
 public:
  SynchronizationScope(std::shared_ptr<Step> step, const torch::nn::Module* model,
                       Synchronization how);
  SynchronizationScope(const SynchronizationScope&) = delete;
  SynchronizationScope& operator=(const SynchronizationScope&) = delete;
  ~SynchronizationScope();

 private:
  std::shared_ptr<Step> step_;
  const torch::nn::Module* model_;
  Synchronization before_;
};

// Records LibTorch's operators until the end of the block and then writes a Chrome trace
// (chrome://tracing, Perfetto).
class [[nodiscard]] Profile {
 public:
  explicit Profile(std::filesystem::path trace);
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;
  ~Profile();

 private:
  std::filesystem::path trace_;
};

class Accelerator {
 public:
  explicit Accelerator(AcceleratorOptions options = {});

  // A handle for each object, in order, for structured bindings: a module (TORCH_MODULE holder,
  // shared_ptr or an object on the stack), an optimizer, a learning-rate scheduler, a loader. See
  // hasten/prepare/prepared.h.
  template <class... Objects>
  auto prepare(Objects&&... objects) {
    return std::make_tuple(detail::prepare_one(std::forward<Objects>(objects), step_)...);
  }

  // Gradients of the loss. Inside accumulate() the micro-batches of a window weigh equally, or by
  // `items` (tokens, labels, rows: what the loss is a mean over); the gradients are divided once,
  // when the window closes. It takes the place of loss.backward(), whose other arguments are in the
  // options: `accelerator.backward(loss, {.retain_graph = true})`. The loss should be in float:
  // under mixed precision a model's outputs are in bfloat16, so compute the loss under autocast(),
  // which takes losses in float, or from `logits.to(torch::kFloat)`.
  void backward(const at::Tensor& loss, const BackwardOptions& options = {}) {
    step_->backward(loss, -1, options);
  }
  void backward(const at::Tensor& loss, double items, const BackwardOptions& options = {}) {
    step_->backward(loss, items, options);
  }

  // Scope of one micro-batch of these models; `auto guard = accelerator.accumulate(model);`. Hand
  // it every model that the losses inside are to train: backward() leaves the gradients of other
  // prepared models as they are, so that models which train in turn (a GAN) do not disturb each
  // other. docs/design/003 says what a window is.
  template <class... Models>
  Accumulate accumulate(const Models&... models) {
    return Accumulate(step_, {models.unwrap()...});
  }
  // Scope in which backward() exchanges no gradients of the model; they add up in each process
  // until a backward() outside of it. `auto guard = accelerator.no_sync(model);`
  template <class Model>
  SynchronizationScope no_sync(const Model& model) const {
    return {step_, model.unwrap().get(), Synchronization::later};
  }
  // Scope in which every backward() exchanges the model's gradients, with those that are here
  // already: inside of no_sync() too, and before a window's end, which stays where it is (the sum
  // over the processes is then divided by their number, and by the window's weight at its end).
  template <class Model>
  SynchronizationScope trigger_sync_in_backward(const Model& model) const {
    return {step_, model.unwrap().get(), Synchronization::now};
  }
  // Scope in which processes may have unequal numbers of batches: hasten/prepare/join.h.
  // `auto guard = accelerator.join_uneven_inputs(model);`, or ({.even_batches = false}, model).
  template <class... Models>
  JoinUnevenInputs join_uneven_inputs(JoinOptions options, const Models&... models) {
    return JoinUnevenInputs(step_, {static_cast<torch::nn::Module*>(models.unwrap().get())...},
                            options);
  }
  template <class... Models>
  JoinUnevenInputs join_uneven_inputs(const Models&... models) {
    return join_uneven_inputs(JoinOptions{}, models...);
  }
  // Whether the latest micro-batch closes its window; true after a backward() that was in none.
  bool sync_gradients() const { return step_->sync_gradients(); }
  // For loops that step an optimizer of their own: the window's gradients have been used.
  void stepped() { step_->stepped(); }
  std::int64_t gradient_accumulation_steps() const { return step_->accumulation_steps; }

  // Clips, but inside an open window of these parameters it does nothing and gives 0. Gives the
  // norm from before, which on a TPU is read from the device when it is asked for.
  DeferredScalar clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm,
                                 double norm_type = 2.0);
  void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value);

  // The Accelerator's precision for code outside a prepared model.
  AutocastGuard autocast() const {
    ++step_->forwards;
    return AutocastGuard(step_->precision, device().type());
  }
  Precision mixed_precision() const { return step_->precision; }

  // A batch that no prepared loader has brought there, as one does: padded where the device asks
  // for it. `rows`: those of a full batch; 0: no more than there are.
  TensorDict to_device(TensorDict batch, std::int64_t rows = 0) const;
  // How many programs the device's compiler has made for this process so far; 0 where there is none
  // (CPU, GPU).
  std::int64_t compiled_programs() const;

  const ProcessState& process() const { return step_->process; }
  at::Device device() const { return step_->process.device; }
  bool is_main_process() const { return process().is_main_process(); }
  bool is_local_main_process() const { return process().is_local_main_process(); }
  bool is_last_process() const { return process().is_last_process(); }
  // Runs f on that process only: of the job, of each machine, the last, or the one with that index.
  void on_main_process(const std::function<void()>& f) const;
  void on_local_main_process(const std::function<void()>& f) const;
  void on_last_process(const std::function<void()>& f) const;
  void on_process(std::int64_t process_index, const std::function<void()>& f) const;
  // The main process (of each machine) goes through the block before the others.
  MainProcessFirst main_process_first() const { return {process(), group()}; }
  MainProcessFirst local_main_process_first() const { return {process(), group(), true}; }
  // Lines with a level; see hasten/process/logger.h.
  Logger get_logger(const std::string& name, LogLevel level = LogLevel::passive) const;
  // A line on standard output, from each machine's main process.
  void print(const std::string& line) const;

  // The collectives. gather_for_metrics leaves out rows that fill up a last step: hasten/prepare/
  // metrics.h.
  const Group& group() const { return step_->group; }
  // They take a tensor or a whole batch (hasten/data/batch.h).
  template <TensorBatch Batch>
  Batch gather(const Batch& batch) const {
    step_->require_all("gather");
    return hasten::gather(group(), batch);
  }
  template <TensorBatch Batch>
  Batch gather_for_metrics(Batch batch) const {
    visit_tensors(batch,
                  [&](at::Tensor& tensor) { tensor = hasten::gather_for_metrics(tensor, *step_); });
    return batch;
  }
  template <TensorBatch Batch>
  Batch reduce(const Batch& batch, Reduction reduction = Reduction::sum, double scale = 1.0) const {
    step_->require_all("reduce");
    return hasten::reduce(group(), batch, reduction, scale);
  }
  template <TensorBatch Batch>
  Batch pad_across_processes(const Batch& batch, std::int64_t dim = 0, double pad_index = 0,
                             bool pad_first = false) const {
    step_->require_all("pad_across_processes");
    return hasten::pad_across_processes(group(), batch, dim, pad_index, pad_first);
  }
  // This process's part of a list, a tensor or a map of them; hasten/process/split.h.
  template <class Inputs>
  Inputs split_between_processes(const Inputs& inputs, bool apply_padding = false) const {
    return hasten::split_between_processes(inputs, process(), apply_padding);
  }
  // A flag that any process may set and all see: `if (accelerator.check_trigger()) break;`. The
  // check is a collective and clears it.
  void set_trigger() { step_->trigger = true; }
  bool check_trigger();
  void wait_for_everyone() const {
    step_->require_all("wait_for_everyone");
    group().barrier();
  }

  // Chrome trace of what runs until the end of the block.
  Profile profile(const std::filesystem::path& trace) const { return Profile(trace); }
  // Where every byte and operation goes, from here on; see hasten/anatomy/anatomy.h.
  Anatomy anatomy(AnatomyOptions options = {}) const;
  // Lets go of these handles, of their models' buffers for the exchange, and of all accumulation
  // windows: `accelerator.free_memory(model, optimizer);`. What else refers to an object keeps it
  // alive. Without handles it drops the windows alone, and every model stays prepared.
  template <class... Handles>
  void free_memory(Handles&... handles) {
    (release(handles), ...);
    step_->drop_windows();
  }

 private:
  template <class Handle>
  void release(Handle& handle) {
    if constexpr (requires { static_cast<const torch::nn::Module*>(handle.unwrap().get()); })
      step_->forget(handle.unwrap().get());
    handle.reset();
  }

  friend class LocalSGD;
  std::shared_ptr<Step> step_;
};

// Seeds LibTorch's generators, on all devices. With device_specific, process n of those that were
// started together is seeded with seed + n, so that each draws dropout masks and noise of its own.
// Without it, as by default in Accelerate, all processes draw the same numbers: that is right while
// models are built and data is divided, and a call with device_specific belongs after that. The
// order of prepared loaders is the same everywhere in both cases. A Trainer seeds each process with
// its own number.
void set_seed(std::int64_t seed, bool device_specific = false);

}  // namespace hasten
