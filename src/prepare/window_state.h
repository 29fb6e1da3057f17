// File: prepare/window_state.h (internal)
// The open accumulation windows of this process as a checkpoint keeps them: their place in
// accelerator_state.json, and the gradients that they hold in a file of each process.
//
//   const OpenWindows own = open_windows_of(state);
//   check_continuable(own, "save_state()");
//   if (!own.empty()) save_safetensors(folder / gradients_file(rank), own.gradients);
//   check_windows(state, own, folder);
//   restore_windows(state, own);
//
// Throws UsageError "checkpoint.open-window", DataError "checkpoint.gradients" and
// "checkpoint.window". Thread rule: that of the Accelerator.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/gradient_state.h"
#include "hasten/prepare/open_window.h"
#include "prepare/accelerator_state.h"

namespace hasten {

// The names of an optimizer's parameters: those of the model, after `model_1.` and so on for a
// further model; `group.G.parameter.P` for a parameter of none.
ParameterNames names_of_parameters(const torch::optim::Optimizer& optimizer, SavedObjects& saved);

OpenWindows open_windows_of(AcceleratorState& state);

// Throws if the last micro-batch of a window has begun and its step has not been made: a run that
// resumes begins with the next micro-batch. `call` is the call that saves.
void check_continuable(const OpenWindows& open, const char* call);

// For each window the numbers of its models and its counts.
nlohmann::json json_of(const std::vector<OpenWindow>& windows);
// Reads what the process of this rank has saved into `folder`; `of_ranks` has the windows of all.
// Throws if a window was open and the number of processes is another one now, and what
// check_windows() throws. Changes nothing.
OpenWindows read_windows(AcceleratorState& state, const nlohmann::json& of_ranks,
                         const std::filesystem::path& folder);
// Throws unless the windows and their gradients are those of the prepared objects. `from` names
// where they come from.
void check_windows(AcceleratorState& state, const OpenWindows& saved,
                   const std::filesystem::path& from);
// Replaces all windows and gradients by those that check_windows() has accepted, which are brought
// to the scale of this run's losses.
void restore_windows(AcceleratorState& state, const OpenWindows& saved);

}  // namespace hasten
