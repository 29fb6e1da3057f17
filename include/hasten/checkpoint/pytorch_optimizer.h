// File: hasten/checkpoint/pytorch_optimizer.h
// Continues an optimizer and a schedule that Python has saved: the files optimizer.pt and
// scheduler.pt of the Hugging Face Trainer, and optimizer.bin and scheduler.bin of Accelerate. It
// also continues an optimizer that LibTorch's torch::save(optimizer, file) has saved.
//
//   auto scheduler = get_scheduler(SchedulerType::linear, adamw, {.num_training_steps = 1000});
//   load_pytorch_optimizer("checkpoint-500/optimizer.pt", adamw, {.allow_pickle = true});
//   const PyTorchSchedule saved =
//       load_pytorch_schedule("checkpoint-500/scheduler.pt", {.allow_pickle = true});
//   scheduler->set_last_step(saved.last_epoch);
//
// Parameters are identified by their place in the groups, so the optimizer needs the same groups
// with the same parameters in the same order; the Hugging Face Trainer has a group with weight
// decay and one without. A file of torch::save does not say which kind of optimizer it has: Adam
// and AdamW have the same state and options there. LBFGS cannot be continued from such a file. The
// files are pickles, but nothing in them is executed (hasten/formats/pytorch_file.h).
//
// Throws what hasten/formats/pytorch_file.h throws; DataError "checkpoint.optimizer-*" if the state
// does not fit the optimizer, which then stays unchanged, and "checkpoint.pytorch-state" if the
// file contains something else. Thread rule: the same as for the optimizer.
// Source: torch/optim/optimizer.py, torch/optim/lr_scheduler.py and torch/optim/serialize.h of
// PyTorch 2.11.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <filesystem>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/formats/pytorch_file.h"

namespace hasten {

// Sets the state of each parameter and the options of each group: learning rate, betas and so on.
HASTEN_API void load_pytorch_optimizer(const std::filesystem::path& file,
                                       torch::optim::Optimizer& optimizer,
                                       const PyTorchFileOptions& options = {});

struct PyTorchSchedule {
  std::int64_t last_epoch = 0;   // the number of steps that the schedule has made
  std::vector<double> base_lrs;  // one for each group; empty if the schedule has none
  std::vector<double> last_lrs;
};

HASTEN_API PyTorchSchedule load_pytorch_schedule(const std::filesystem::path& file,
                                                 const PyTorchFileOptions& options = {});

}  // namespace hasten
