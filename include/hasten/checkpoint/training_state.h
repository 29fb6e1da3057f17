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
// Files: optimizer.safetensors (NAME.exp_avg, NAME.exp_avg_sq, NAME.step; NAME.momentum_buffer for
// SGD), random_state.safetensors (cpu; cuda.N; of rank 1 rank1.cpu and so on),
// training_position.json (also the optimizer's kind and the number of processes). All are required
// when loading: a missing one is an error, never a silent fresh start. Thread rule: one thread at a
// time. Throws IoError "io.*", DataError "checkpoint.*".
#pragma once

#include <torch/optim/optimizer.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "hasten/data/loader.h"
#include "hasten/formats/tensor_dict.h"
#include "hasten/process/group.h"

namespace hasten {

struct TrainingPosition {
  std::string optimizer;  // its kind; filled in when saving
  std::int64_t scheduler_step = 0;
  std::int64_t num_processes = 1;  // that trained
  LoaderState loader;
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

// The folder `checkpoint-N` with the highest N under `output_dir` that is complete; empty path:
// none. Folders are written aside and renamed once, so one that carries the name is whole.
std::filesystem::path last_checkpoint(const std::filesystem::path& output_dir);
// Whether a checkpoint holds the training state, or (save_only_model) the weights alone.
bool has_training_state(const std::filesystem::path& folder);
// All of them, by ascending step.
std::vector<std::filesystem::path> checkpoints(const std::filesystem::path& output_dir);
// Deletes the oldest until `limit` remain, never `keep`.
void rotate_checkpoints(const std::filesystem::path& output_dir, std::int64_t limit,
                        const std::filesystem::path& keep);

}  // namespace hasten
