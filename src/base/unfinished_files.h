// File: base/unfinished_files.h (internal)
// The names of files and folders that are being written. Each name contains its writer, so that the
// files of a killed process are recognized and removed.
//
//   const fs::path staged = folder / str('.', name, kPartial, writer_tag());
//   remove_abandoned(folder, is_checkpoint);       // hasten/base/files.h
//
// Thread rule: any thread.
#pragma once

#include <string>

namespace hasten {

inline constexpr const char* kPartial = ".partial-";    // Folders.
inline constexpr const char* kReplaced = ".replaced-";  // Folders.
inline constexpr const char* kTemporary = ".tmp-";      // Files; a number precedes the tag.

// Returns PID-START-HOST of this process. Determines it on each call, because a fork is another
// process.
std::string writer_tag();

}  // namespace hasten
