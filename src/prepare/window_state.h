// File: prepare/window_state.h (internal)
// The open accumulation windows of this process, as a checkpoint stores them: the windows are in
// accelerator_state.json, and their gradients are in a file of each process.
//
//   const OpenWindows own = open_windows_of(state);
//   check_windows_resumable(own, "save_state()");
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
#include "hasten/prepare/detail/open_window.h"
#include "prepare/accelerator_state.h"

namespace hasten {

// Returns the names of an optimizer's parameters. They are the names in the model, with the prefix
// `model_1.` and so on for further models, or `_model_1.` if the first model has a module of this
// name. A parameter that belongs to no model has the name `group.G.parameter.P`.
ParameterNames names_of_parameters(const torch::optim::Optimizer& optimizer, SavedObjects& saved);

OpenWindows open_windows_of(AcceleratorState& state);

// Throws if the last micro-batch of a window has begun but its step was not made, because a resumed
// run begins with the next micro-batch. `call` is the name of the call that saves.
void check_windows_resumable(const OpenWindows& open, const char* call);

// Returns, for each window, the numbers of its models and its counts.
nlohmann::json json_of(const std::vector<OpenWindow>& windows);
// Reads the windows that the process of this rank has saved into `folder`. `of_ranks` has the
// windows of all ranks. Throws if a window was open and the number of processes is now different.
// Also throws the exceptions of check_windows(). Changes nothing.
OpenWindows read_windows(AcceleratorState& state, const nlohmann::json& of_ranks,
                         const std::filesystem::path& folder);
// Throws unless the windows and their gradients match the prepared objects. `from` is their source,
// for messages.
void check_windows(AcceleratorState& state, const OpenWindows& saved,
                   const std::filesystem::path& from);
// Replaces all windows and gradients with windows that check_windows() has accepted. Converts their
// gradients to the scale of this run's losses.
void restore_windows(AcceleratorState& state, const OpenWindows& saved);

}  // namespace hasten
