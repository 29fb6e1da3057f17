// File: hasten/prepare/detail/accelerator_options.h
// The options of an Accelerator. Options that Accelerate also has use its names.
//
//   hasten::AcceleratorOptions options{.mixed_precision = hasten::Precision::bf16,
//                                      .gradient_accumulation_steps = 4};
//   options.dataloader_config.split_batches = true;
//   hasten::Accelerator accelerator(options);
//
// The constructor of Accelerator (hasten/accelerator.h) checks them, and its comment lists the
// errors. Thread rule: values.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "hasten/data/detail/loader_sharding.h"
#include "hasten/optim/grad_scaler.h"
#include "hasten/prepare/detail/autocast.h"
#include "hasten/prepare/detail/data_parallel.h"
#include "hasten/prepare/detail/save_state.h"
#include "hasten/process/group.h"
#include "hasten/track/tracker.h"

namespace hasten {

// Options of the group of processes. Options that Accelerate also has use its names.
struct InitProcessGroupKwargs {
  // The time limit for all processes to meet, and for each collective.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  // When a collective exceeds the timeout, reports the late rank and ends the job.
  // HASTEN_WATCHDOG=off turns it off as well.
  bool watchdog = true;
  // The backend for GPU and TPU tensors. For a GPU, `automatic` selects NCCL if every process can
  // load it, otherwise Gloo through host memory. For a TPU, it selects tpu_dist, or, if PCI lists
  // no TPU, Gloo, which is slow. HASTEN_PROCESS_GROUP_BACKEND=gloo, tpu_dist or nccl replaces
  // `automatic`.
  ProcessGroupBackend backend = ProcessGroupBackend::automatic;
  // Sums, gathers and broadcasts CPU tensors in memory that the processes of one machine share,
  // instead of sending them through Gloo. HASTEN_SHARED_MEMORY=off turns it off as well.
  bool shared_memory = true;
  // Encrypts data between ranks of different machines. If unset, HASTEN_ENCRYPT decides; without
  // that variable, data is encrypted if the job has a token (hasten/process/group.h).
  std::optional<bool> encrypt = {};
};

struct AcceleratorOptions {
  // If unset: the value of ACCELERATE_MIXED_PRECISION, which hasten launch sets, or none without
  // that variable.
  std::optional<Precision> mixed_precision = {};
  // How losses are scaled with fp16 (hasten/optim/grad_scaler.h). backward() multiplies the loss by
  // the scale, clip_grad_norm_() and step() divide the gradients by it, step() skips a step with
  // gradients that are infinite or NaN, and the scale is a part of save_state().
  GradScalerKwargs grad_scaler = {};
  // The largest number of micro-batches in an accumulation window.
  std::int64_t gradient_accumulation_steps = 1;
  // Uses the CPU even if there is a GPU or a TPU. Also set by ACCELERATE_USE_CPU=true.
  bool cpu = false;
  // Requires a TPU: without one the constructor throws an error that says what is missing
  // ("device.tpu-*" in docs/errors.md). Also set by ACCELERATE_USE_TPU=true. Without this option a
  // TPU is used if the machine has one, unless `cpu` is set or ACCELERATE_USE_TPU=false.
  bool tpu = false;
  // With bf16 on a TPU, double numbers in batches become float, not bfloat16 (docs/tpu.md). Also
  // set by ACCELERATE_DOWNCAST_BF16=true.
  bool downcast_bf16 = false;
  // prepare() moves models to the device, and prepared loaders move their batches there.
  bool device_placement = true;
  DistributedDataParallelKwargs ddp = {};          // see hasten/prepare/detail/data_parallel.h
  DataLoaderConfiguration dataloader_config = {};  // see hasten/data/detail/loader_sharding.h
  InitProcessGroupKwargs process_group = {};
  // Checks before each collective that all processes make the same call. Also set by
  // ACCELERATE_DEBUG_MODE=true.
  bool debug = false;
  // The trackers that init_trackers starts: names (tracker_names(), or "all") and trackers of your
  // own (hasten/track/tracker.h): `.log_with = {"tensorboard", own_tracker}`.
  std::vector<TrackerChoice> log_with = {};
  // The folder of the trackers that write files. Each project has a folder of its name there.
  std::filesystem::path logging_dir = {};
  // The folder and the number of the checkpoints of save_state(); see
  // hasten/prepare/detail/save_state.h.
  ProjectConfiguration project_config = {};
  // The number of virtual ranks, a power of two; 0 means none. With virtual ranks, a run has the
  // same bits on any number of processes that divides their number, and the number of processes may
  // change at every checkpoint. Each process runs its virtual ranks one after the other in every
  // step (docs/distributed.md, "Elastic ranks"). All CPUs must be of the same kind.
  std::int64_t elastic_ranks = 0;
  // The number of threads that each process uses for one operation if elastic_ranks is set. It
  // changes the bits of sums, so a run must keep it.
  std::int64_t elastic_threads = 1;
  // Steps each parameter of the prepared optimizers in the backward pass, as soon as its gradient
  // is complete, and frees the gradient, so only a few gradients exist at once. The weights have
  // the same bits as after a step that follows the pass. Each pass that reaches a parameter steps
  // it, with the current learning rate, and optimizer.step() then only counts the step. For one
  // process, and for optimizers that step each parameter independently of the others. Throws
  // UsageError "prepare.step-in-backward" for anything that needs all gradients at once: several
  // processes, windows of several micro-batches, elastic ranks, create_graph, retain_graph,
  // clip_grad_norm_(), clip_grad_value_(), step(closure), and two passes before a step.
  bool step_in_backward = false;
  // Keeps the states of the prepared optimizers in host memory, with a copy of the weights, and
  // steps there: gradients are copied to the host, and weights are copied back. Has no effect on
  // the CPU. Throws UsageError "prepare.offload" for LBFGS and for a TPU.
  bool offload_optimizer_states = false;
  // Lets CUDA graphs repeat the steps of Accelerator::training_step, so that the host starts all
  // kernels of a step with one call (hasten/prepare/detail/training_step.h). Has no effect on other
  // loops, and on other devices than GPUs.
  bool cuda_graph = false;
};

}  // namespace hasten
