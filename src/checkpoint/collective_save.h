// File: checkpoint/collective_save.h (internal)
// Saves a checkpoint of all processes of a group. Accelerator::save_state and the Trainer give it
// the parts of their checkpoints, and it does them in the same order.
//
//   GroupSave background(group, warn);
//   save_checkpoint(group, background,
//                   {.writes = is_main,
//                    .begin = [&] { return NewCheckpoint{.save = open_checkpoint(folder)}; },
//                    .write = [&](const fs::path& staged) { save_safetensors(staged / "a", a); }});
//
// If a part throws in one process, all processes throw its error, and the folder is removed. An
// error of std::filesystem becomes an IoError, and a lack of memory becomes MemoryError
// "checkpoint.out-of-memory", because once() passes on only errors of hasten unchanged. Thread
// rule: the thread of the group's collectives.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "checkpoint/group_save.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/process/group.h"

namespace hasten {

struct NewCheckpoint {
  std::shared_ptr<CheckpointSave> save;
  CheckpointRotation rotation = {};
};

// The parts of a save, in the order in which they are called. The folder that they get is the one
// to write to.
struct SaveParts {
  bool writes = false;        // This process writes a folder.
  bool on_each_node = false;  // One process of each machine writes a folder.
  bool asynchronous = false;  // The files are written in the background.
  // Opens the checkpoint, in the processes that write a folder.
  std::function<NewCheckpoint()> begin;
  // Calls the hooks of the program, in all processes.
  std::function<void(const std::filesystem::path&)> call_hooks;
  // Gathers what `write` needs, in all processes. It may be a collective.
  std::function<void(const std::filesystem::path&)> gather;
  // Writes this process's files. A save in the background calls it twice if there is too little
  // memory for a copy.
  std::function<void(const std::filesystem::path&)> write;
};

// Returns when the checkpoint is complete, or when it has been copied if it is written in the
// background. A collective.
void save_checkpoint(const Group& group, GroupSave& background, const SaveParts& parts);

}  // namespace hasten
