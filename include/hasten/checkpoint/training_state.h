// File: hasten/checkpoint/training_state.h
// What a run needs beside the weights to go on as if it had never stopped: the optimizer's moments,
// the schedule's step, every stream of randomness, and the place in the data. Safetensors and JSON;
// nothing is ever unpickled.
//
//   save_training_state(folder, adamw, names, {.scheduler_step = 500, .loader = loader.state()});
//   TrainingPosition position = load_training_state(folder, adamw, names);
//
// Files: optimizer.safetensors (NAME.exp_avg, NAME.exp_avg_sq, NAME.step; NAME.momentum_buffer for
// SGD), random_state.safetensors (cpu; cuda.N), training_position.json (also the optimizer's kind).
// All are required when loading: a missing one is an error, never a silent fresh start. Thread
// rule: one thread at a time. Throws IoError "io.*", DataError "checkpoint.*".
#pragma once

#include <torch/optim/optimizer.h>

#include <filesystem>
#include <map>
#include <string>

#include "hasten/data/loader.h"
#include "hasten/formats/tensor_dict.h"

namespace hasten {

struct TrainingPosition {
  std::int64_t scheduler_step = 0;
  LoaderState loader;
};

// Name of each parameter by which its state is kept: the model's names.
using ParameterNames = std::map<std::string, at::Tensor>;

void save_training_state(const std::filesystem::path& folder,
                         const torch::optim::Optimizer& optimizer, const ParameterNames& parameters,
                         const TrainingPosition& position);
// Restores the optimizer and LibTorch's generators in place.
TrainingPosition load_training_state(const std::filesystem::path& folder,
                                     torch::optim::Optimizer& optimizer,
                                     const ParameterNames& parameters);

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
