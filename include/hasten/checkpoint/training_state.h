// File: hasten/checkpoint/training_state.h
// What a run needs beside the weights to go on as if it had never stopped: the optimizer's moments,
// the schedule's step, every stream of randomness of every process, and the place in the data.
// Safetensors and JSON; nothing is ever unpickled.
//
//   const auto random = random_states(group);               // a collective; one process writes
//   save_training_state(folder, adamw, names, {.scheduler_step = 500, .loader = loader.state()},
//                       random);
//   TrainingPosition position = load_training_position(folder);
//   load_training_state(folder, adamw, names, group.rank());
//
// Files: optimizer.safetensors (the state by parameter: docs/formats.md), random_state.safetensors
// (cpu; cuda.N; of rank 1 rank1.cpu and so on), training_position.json (also the optimizer's name
// and the number of processes). All are required when loading: a missing one is an error, never a
// silent fresh start. Optimizers: hasten::AdamW and all of LibTorch's. Thread rule: one thread at a
// time. Throws IoError "io.*", DataError "checkpoint.*", UsageError "checkpoint.unknown-optimizer".
#pragma once

#include <torch/optim/optimizer.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/data/loader.h"
#include "hasten/formats/tensor_dict.h"
#include "hasten/process/group.h"

namespace hasten {

// The losses of steps: the sum of those that are finite (of all where a log shows others too), and
// how many steps had a finite loss and how many had not.
struct LossSum {
  double sum = 0;
  std::int64_t finite = 0, nonfinite = 0;
};

// The sums from which a resumed run continues its mean loss and its next log.
struct LossPosition {
  LossSum of_run, since_log;
  std::int64_t last_logged_step = 0;
};

// The training data, as far as a run that resumes can tell that they are others now: the number of
// rows, and a digest of some of them (empty: they are not the same each time they are read).
struct DataIdentity {
  std::int64_t rows = 0;
  std::string sample;
};

struct TrainingPosition {
  std::string optimizer;  // its name; filled in when saving
  std::int64_t scheduler_step = 0;
  std::int64_t num_processes = 1;  // that trained
  LoaderState loader;
  std::optional<LossPosition> losses = {};
  std::optional<DataIdentity> data = {};
};

// Name of each parameter by which its state is kept: the model's names.
using ParameterNames = std::map<std::string, at::Tensor>;

// LibTorch's generators in every process, in the order of the ranks. A collective.
std::vector<TensorDict> random_states(const Group& group);

void save_training_state(const std::filesystem::path& folder,
                         const torch::optim::Optimizer& optimizer, const ParameterNames& parameters,
                         const TrainingPosition& position,
                         const std::vector<TensorDict>& random_states);
TrainingPosition load_training_position(const std::filesystem::path& folder);
// Restores the optimizer, and LibTorch's generators as they were in that rank. False: there were
// fewer processes then, so that this rank's generators are left as they are.
bool load_training_state(const std::filesystem::path& folder, torch::optim::Optimizer& optimizer,
                         const ParameterNames& parameters, std::int64_t rank = 0);

// Whether a checkpoint holds the training state, or (save_only_model) the weights alone.
bool has_training_state(const std::filesystem::path& folder);

}  // namespace hasten
