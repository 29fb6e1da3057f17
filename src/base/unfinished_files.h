// File: base/unfinished_files.h (internal)
// The names of files and folders that are being written. Each name contains its writer, so that the
// files of a killed process are recognized and removed.
//
//   const fs::path staged = folder / str('.', name, kPartial, writer_tag());
//   remove_abandoned(folder, is_checkpoint);       // hasten/base/files.h
//
// Thread rule: any thread.
#pragma once

#include <optional>
#include <string>

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

}  // namespace hasten
