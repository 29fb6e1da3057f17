// File: hasten/prepare/accelerator_options.h
// The options of an Accelerator. Names are Accelerate's where it has the option.
//
//   hasten::AcceleratorOptions options{.mixed_precision = hasten::Precision::bf16,
//                                      .gradient_accumulation_steps = 4};
//   options.dataloader_config.split_batches = true;
//   hasten::Accelerator accelerator(options);
//
// The constructor of Accelerator (hasten/accelerator.h) checks them and says what it throws. Thread
// rule: values.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "hasten/data/share.h"
#include "hasten/optim/grad_scaler.h"
#include "hasten/prepare/data_parallel.h"
#include "hasten/prepare/precision.h"
#include "hasten/prepare/save_state.h"
#include "hasten/process/group.h"
#include "hasten/track/tracker.h"

namespace hasten {

// Options of the group of processes. The names are Accelerate's where it has the option.
struct InitProcessGroupKwargs {
  // The limit for all processes to meet, and for each collective.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  // When a collective exceeds the timeout, reports the late rank and ends the job.
  // HASTEN_WATCHDOG=off turns it off as well.
  bool watchdog = true;
  // The backend for GPU and TPU tensors. `automatic` is, for a GPU, NCCL if every process can load
  // it, otherwise Gloo through host memory; for a TPU, tpu_dist, or Gloo, which is slow, if PCI
  // lists no TPU. HASTEN_PROCESS_GROUP_BACKEND=gloo, tpu_dist or nccl replaces `automatic`.
  ProcessGroupBackend backend = ProcessGroupBackend::automatic;
  // Sums, gathers and broadcasts CPU tensors in memory that the processes of one machine share,
  // instead of with Gloo's messages. HASTEN_SHARED_MEMORY=off turns it off as well.
  bool shared_memory = true;
  // Encrypts data between ranks of different machines. Unset: as HASTEN_ENCRYPT says; without that
  // variable, data is encrypted if the job has a token (hasten/process/group.h).
  std::optional<bool> encrypt;
};

struct AcceleratorOptions {
  // Unset: ACCELERATE_MIXED_PRECISION, which hasten launch sets; without it, none.
  std::optional<Precision> mixed_precision;
  // With fp16: how losses are scaled (hasten/optim/grad_scaler.h). backward() multiplies the loss
  // by the scale, clip_grad_norm_() and step() divide the gradients by it, step() skips a step with
  // gradients that are infinite or NaN, and the scale is a part of save_state().
  GradScalerKwargs grad_scaler;
  // The most micro-batches in an accumulation window.
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
  DistributedDataParallelKwargs ddp;          // see hasten/prepare/data_parallel.h
  DataLoaderConfiguration dataloader_config;  // see hasten/data/share.h
  InitProcessGroupKwargs process_group;
  // Checks before each collective that all processes make the same call. Also set by
  // ACCELERATE_DEBUG_MODE=true.
  bool debug = false;
  // The trackers that init_trackers starts: names (tracker_names(), or "all") and trackers of your
  // own (hasten/track/tracker.h): `.log_with = {"tensorboard", own_tracker}`.
  std::vector<TrackerChoice> log_with;
  // The folder of the trackers that write files. Each project has a folder of its name in it.
  std::filesystem::path logging_dir;
  // The folder and the number of the checkpoints of save_state(); see hasten/prepare/save_state.h.
  ProjectConfiguration project_config;
  // The number of virtual ranks, a power of two; 0: none. With them a run has the same bits on any
  // number of processes that divides it, and may change that number at every checkpoint: each
  // process runs its virtual ranks one after the other in every step (docs/distributed.md, "Elastic
  // ranks"). For CPUs of one kind.
  std::int64_t elastic_ranks = 0;
  // The threads that each process uses for one operation if elastic_ranks is set: their number
  // changes the bits of sums, so it is a part of the run.
  std::int64_t elastic_threads = 1;
  // Steps each parameter of the prepared optimizers in the backward pass, as soon as its gradient
  // is complete, and frees the gradient: no more than some gradients are there at once. The weights
  // get the bits of a step after the pass. Each pass that reaches a parameter steps it, with the
  // learning rate of that time, and optimizer.step() then only counts the step. For one process and
  // for optimizers whose parameters do not depend on each other. Throws UsageError
  // "prepare.step-in-backward" for what needs all gradients at once: several processes, windows of
  // several micro-batches, elastic ranks, create_graph, retain_graph, clip_grad_norm_(),
  // clip_grad_value_(), step(closure), and two passes before a step.
  bool step_in_backward = false;
  // Keeps the states of the prepared optimizers in host memory, with a copy of the weights, and
  // steps there: gradients come to the host and weights go back. On the CPU nothing changes. Not
  // for LBFGS and not for a TPU: throws UsageError "prepare.offload".
  bool offload_optimizer_states = false;
};

}  // namespace hasten
