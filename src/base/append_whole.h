// File: base/append_whole.h (internal)
// Appends a record to a file, of which no part may remain if the disk is full: another record may
// follow it later.
//
//   if (!append_whole(file, line, path)) throw_file_error("io.write", "cannot write", path, errno);
//
// Thread rule: one thread at a time for each file.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>

#include "base/descriptor.h"
#include "hasten/base/log.h"
#include "hasten/base/text.h"

namespace hasten {

// Appends all bytes or nothing. Returns false, with errno set, if a write fails. Logs a warning if
// the file could not be shortened to its old size then.
inline bool append_whole(int file, std::string_view bytes, const std::filesystem::path& path) {
  const off_t size = lseek(file, 0, SEEK_END);
  if (write_all(file, bytes)) return true;
  const int error = errno;
  if (size < 0 || ftruncate(file, size) != 0)
    log_line(str("hasten: warning: ", path.string(), ": the last line may be half-written"));
  errno = error;
  return false;
}

}  // namespace hasten
