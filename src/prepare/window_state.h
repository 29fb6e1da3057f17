// File: prepare/window_state.h (internal)
// The open accumulation windows of this process as a checkpoint keeps them: their place in
// accelerator_state.json, and the gradients that they hold in a file of each process.
//
//   const WindowState own = window_state_of(state);
//   if (own.is_open()) save_safetensors(folder / gradients_file(rank), own.gradients);
//   restore_window_state(state, own, scale);
//
// Throws UsageError "checkpoint.open-window", DataError "checkpoint.gradients" and
// "checkpoint.window". Thread rule: that of the Accelerator.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "hasten/checkpoint/training_state.h"
#include "prepare/accelerator_state.h"

namespace hasten {

struct WindowState {
  // For each window the numbers of its models, the micro-batches that have begun, those that had a
  // backward pass, and the sum of their weights.
  nlohmann::json windows = nlohmann::json::array();
  // The gradients of everything that is prepared, by name; empty if no window is open.
  TensorDict gradients;

  bool is_open() const { return !windows.empty(); }
};

// The names of an optimizer's parameters: those of the model, after `model_1.` and so on for a
// further model; `group.G.parameter.P` for a parameter of none.
ParameterNames names_of_parameters(const torch::optim::Optimizer& optimizer, SavedObjects& saved);

// Throws if the last micro-batch of a window has begun and its step has not been made: a run that
// resumes begins with the next micro-batch.
WindowState window_state_of(AcceleratorState& state);

// "gradients_0.safetensors" and so on.
std::string gradients_file(std::int64_t rank);

// Reads what the process of this rank has saved into `folder`; `of_ranks` has the windows of all.
// Throws if a window was open and the number of processes is another one now, or if something does
// not fit. Changes nothing.
WindowState read_window_state(AcceleratorState& state, const nlohmann::json& of_ranks,
                              const std::filesystem::path& folder);
// Replaces all windows and gradients. `scale` is the one that the gradients were saved with; they are
// brought to that of this run, which may be another one if a run changes its precision. A collective
// that exchanges nothing.
void restore_window_state(AcceleratorState& state, const WindowState& saved,
                          const std::optional<LossScalePosition>& scale);

}  // namespace hasten
