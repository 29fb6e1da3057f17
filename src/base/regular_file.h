// File: base/regular_file.h (internal)
// Finds out whether a path names a regular file before a program reads it. To open a pipe waits
// for a writer, perhaps for ever, and a device may never end.
//
//   if (const char* const other = kind_unless_regular(path)) fail(str("got ", other));
//
// Thread rule: any thread. Throws nothing.
#pragma once

#include <sys/stat.h>

#include <filesystem>

namespace hasten {

// Returns null for the mode of a regular file, and otherwise the kind of the file for a message.
inline const char* kind_unless_regular(mode_t mode) {
  if (S_ISREG(mode)) return nullptr;
  return S_ISDIR(mode) ? "a folder" : "a pipe, a socket or a device";
}

// Does the same for a path, whose symbolic links it follows, and does not open the file. Returns
// null as well if the file cannot be looked up, because to open it then says why.
inline const char* kind_unless_regular(const std::filesystem::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? kind_unless_regular(status.st_mode) : nullptr;
}

}  // namespace hasten
