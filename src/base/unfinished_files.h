// File: base/unfinished_files.h (internal)
// The names of files and folders that are being written. Each name contains its writer, so that the
// files of a killed process are recognized and removed.
//
//   const fs::path staged = folder / str('.', name, kPartial, writer_tag());
//   remove_abandoned(folder, is_checkpoint);       // hasten/base/files.h
//   restore_replaced_folder("run/state");          // before a program looks for it
//
// Thread rule: any thread.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "base/internal_api.h"

namespace hasten {

inline constexpr const char* kPartial = ".partial-";    // Folders.
inline constexpr const char* kReplaced = ".replaced-";  // Folders.
inline constexpr const char* kTemporary = ".tmp-";      // Files; a number precedes the tag.

// Returns PID-START-HOST of this process. Determines it on each call, because a fork is another
// process.
std::string writer_tag();

// The process that a tag names.
struct TaggedProcess {
  std::string pid;
  bool is_visible = false;  // it was started on this machine, in this PID namespace
  bool has_ended = false;   // it is visible, and it has ended
};

// Returns nullopt if the text is not a tag of writer_tag().
std::optional<TaggedProcess> process_of_tag(const std::string& tag);

// Gives the old folder of an interrupted replacement its name back, at once and whatever machine
// the process ran on, for each name that `is_target` accepts. If the file system cannot swap two
// folders, StagedDirectory::commit() moves the old folder aside and then renames the new one; a
// process that is killed between these two renames leaves no folder of this name. The folders of
// living processes of this machine stay as they are. A living process of another machine cannot be
// told from a killed one: it then repeats both renames. Never replaces a folder. What cannot be
// renamed stays. Throws only what `is_target` throws.
HASTEN_INTERNAL_API void restore_replaced_folders(
    const std::filesystem::path& folder,
    const std::function<bool(const std::string& target)>& is_target);
// Does the same for the folder `target`.
HASTEN_INTERNAL_API void restore_replaced_folder(const std::filesystem::path& target);

}  // namespace hasten
