// File: prepare/registered_objects.h (internal)
// The objects and functions that a program has registered for the checkpoints of an Accelerator.
// save_state() uses them, and the Accelerator offers them to the Trainer.
//
//   call_with(saved.before_save, folder);          // in every process
//   for (const auto& [name, tensors] : object_states(saved)) save_safetensors(folder / name, tensors);
//
//   check_object_count(saved, folder);             // before anything is loaded
//   call_with(saved.before_load, folder);
//   load_objects(saved, folder);
//
// Throws UsageError "checkpoint.other-objects", DataError "safetensors.*", IoError "io.*", and what
// the objects and functions throw. Thread rule: that of the Accelerator.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hasten/formats/detail/tensor_dict.h"
#include "prepare/saved_objects.h"

namespace hasten {

// Calls each function that has not been removed with the folder.
void call_with(const std::vector<std::shared_ptr<CheckpointFunction>>& functions,
               const std::filesystem::path& folder);
// Returns the states of the registered objects by the names of their files.
std::map<std::string, TensorDict> object_states(const SavedObjects& saved);
// Throws unless the folder has the state of as many objects as are registered.
void check_object_count(const SavedObjects& saved, const std::filesystem::path& folder);
// Restores states that object_states() has returned.
void restore_objects(const SavedObjects& saved, const std::map<std::string, TensorDict>& states);
// Restores the states in the folder.
void load_objects(const SavedObjects& saved, const std::filesystem::path& folder);

}  // namespace hasten
