// File: base/file_calls.h (internal)
// System calls for files that several source files use, and their errors.
//
//   const Descriptor file(open_file(path, O_RDONLY));
//   if (file.get() < 0) throw_file_error("io.open", "cannot open", path, errno);
//
// Thread rule: any thread.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>

#include "base/internal_api.h"
#include "hasten/base/error.h"

namespace hasten {

// Returns a hint for an errno, or an empty text if there is none.
std::string hint_for_file_error(int error);
// Throws IoError with the text of the errno and that hint.
[[noreturn]] HASTEN_INTERNAL_API void throw_file_error(const char* code, const std::string& what,
                                                       const std::filesystem::path& path,
                                                       int error);
// Returns an error of std::filesystem as an error of hasten, with the path and that hint.
HASTEN_INTERNAL_API IoError io_error_of(const std::filesystem::filesystem_error& error);
// Opens a file that child processes do not inherit. Tries again if a signal interrupts the call.
// The file does not get the number of a standard stream, even if the program has closed the stream:
// what the program prints would be written to the file. Returns -1 and sets errno if the file
// cannot be opened.
HASTEN_INTERNAL_API int open_file(const std::filesystem::path& path, int flags, mode_t mode = 0);
// True if something has this path. Throws IoError "io.open" if the system does not say so, for
// example because a folder above it may not be entered: then the path may exist.
HASTEN_INTERNAL_API bool path_exists(const std::filesystem::path& path);
// Returns the folder that contains the path, or "." if the path is only a name.
HASTEN_INTERNAL_API std::filesystem::path parent_folder(const std::filesystem::path& path);
// Returns the path of a folder without the slash at its end.
HASTEN_INTERNAL_API std::filesystem::path without_last_slash(const std::filesystem::path& folder);
// Returns the absolute path without `.` and `..`, as a key by which callers know the same path. It
// is relative if the working folder has been deleted.
std::filesystem::path normal_path(const std::filesystem::path& path);
HASTEN_INTERNAL_API void remove_all_quietly(const std::filesystem::path& path) noexcept;

}  // namespace hasten
