// File: checkpoint/kept_checkpoints.h (internal)
// Checkpoints that a newer one of the same name has replaced on this machine. Each machine keeps
// the old one under a hidden name until every machine has the new one (save_on_each_node).
//
//   publish_and_keep(staged);                          // .state.kept-1.partial-WRITER is the old one
//   for (const KeptCheckpoint& kept : kept_checkpoints("run", is_state)) add(save_of(kept.path));
//   give_name_to_save("run/state", save);              // swaps the two if the job needs the old one
//   remove_kept_checkpoints("run", is_state, [](const auto&) { return true; });
//
// If the process is killed before the two have been swapped, the hidden folder is the new one,
// complete. Throws IoError "io.*". Thread rule: any thread; one process at a time changes a folder.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "hasten/base/files.h"

namespace hasten {

struct KeptCheckpoint {
  std::filesystem::path path;    // the hidden folder
  std::filesystem::path target;  // the name that it had or was to get
};

// Returns the text that identifies the save of a checkpoint: the identifier in machine.json or, if
// it has no such file, a digest of its manifest. Returns an empty text if the folder is no
// checkpoint.
std::string save_of(const std::filesystem::path& checkpoint);
// Returns the identifier in the folder's machine.json, or an empty text if there is none.
std::string id_in_machine_file(const std::filesystem::path& folder);

// Commits the folder. If it replaces a folder, the old one is kept under a hidden name.
void publish_and_keep(StagedDirectory& staged);

// Returns the kept checkpoints of the folder with targets whose names `is_target` accepts.
std::vector<KeptCheckpoint> kept_checkpoints(
    const std::filesystem::path& folder,
    const std::function<bool(const std::string& target)>& is_target);

// Returns whether the checkpoint `target` is this save, after it has been swapped with the kept one
// that is, if necessary. Returns false if this machine does not have the save.
bool give_name_to_save(const std::filesystem::path& target, const std::string& save);

// Finds the old folders of processes that were killed while they replaced a checkpoint of several
// machines on a file system that cannot swap two folders. If the new folder has the name, the old
// one becomes a kept one. Call it before remove_abandoned(), which would delete the old one.
void keep_replaced_checkpoints(const std::filesystem::path& folder,
                               const std::function<bool(const std::string& target)>& is_target);

// Deletes the kept checkpoints for which `is_obsolete` returns true. What cannot be deleted stays.
void remove_kept_checkpoints(const std::filesystem::path& folder,
                             const std::function<bool(const std::string& target)>& is_target,
                             const std::function<bool(const KeptCheckpoint&)>& is_obsolete);

}  // namespace hasten
