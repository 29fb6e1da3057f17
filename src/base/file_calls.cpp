#include "base/file_calls.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "hasten/base/error.h"

namespace hasten {

namespace fs = std::filesystem;

std::string hint_for_file_error(int error) {
  switch (error) {
    case ENOSPC:
      return "the disk is full: free some space, or write elsewhere";
    case EDQUOT:
      return "the disk quota is used up";
    case EROFS:
      return "the file system is mounted read-only";
    case EACCES:
    case EPERM:
      return "check the owner and the permissions of the path and of the folders above it";
    case ENOENT:
      return "check the path; a folder above it may be missing";
    case ENOTDIR:
      return "check the path; a part of it is a file, not a folder";
    case EISDIR:
      return "this is a folder: name a file";
    case EFBIG:
      return "the file reaches the limit of the shell (ulimit -f) or of the file system";
    case EIO:
      return "the disk or the file server reports an error: see the system's log";
    case EMFILE:
    case ENFILE:
      return "too many open files: raise the limit with ulimit -n";
    default:
      return "";
  }
}

void throw_file_error(const char* code, const std::string& what, const fs::path& path, int error) {
  // strerror is not thread-safe; the category's message is.
  throw IoError(code, {.what = what + " " + path.string(),
                       .got = std::generic_category().message(error),
                       .hint = hint_for_file_error(error)});
}

IoError io_error_of(const fs::filesystem_error& error) {
  return {"io.file-system",
          {.what = "cannot use " + error.path1().string(),
           .got = error.code().message(),
           .hint = hint_for_file_error(error.code().value())}};
}

int open_file(const fs::path& path, int flags, mode_t mode) {
  int file;
  do {
    file = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (file < 0 && errno == EINTR);
  if (file < 0 || file > STDERR_FILENO) return file;
  const int above = ::fcntl(file, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  ::close(file);
  errno = error;
  return above;
}

bool path_exists(const fs::path& path) {
  std::error_code error;
  const bool exists = fs::exists(path, error);
  if (error) throw_file_error("io.open", "cannot open", path, error.value());
  return exists;
}

fs::path parent_folder(const fs::path& path) {
  const fs::path parent = path.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

fs::path without_last_slash(const fs::path& folder) {
  return folder.has_filename() ? folder : folder.parent_path();
}

fs::path normal_path(const fs::path& path) {
  std::error_code unknown;
  const fs::path absolute = fs::absolute(path, unknown);
  return (unknown ? path : absolute).lexically_normal();
}

void remove_all_quietly(const fs::path& path) noexcept {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

}  // namespace hasten
