#include "formats/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "base/regular_file.h"
#include "hasten/base/error.h"

namespace hasten::detail {
namespace {

[[noreturn]] void fail(const char* code, const char* what, const std::filesystem::path& path,
                       int error) {
  throw IoError(code, {.what = what + (" " + path.string()),
                       .got = std::generic_category().message(error),
                       .hint = error == ENOENT ? "check the path" : ""});
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) fail("io.open", "cannot open", path, errno);
  struct stat status {};
  const int known = ::fstat(file, &status);
  const char* const other =
      known == 0 ? kind_unless_regular(status.st_mode) : "a file that cannot be looked up";
  if (other != nullptr) {
    ::close(file);
    throw IoError("io.not-a-file",
                  {.what = path.string(), .got = other, .expected = "a regular file"});
  }
  size_ = static_cast<std::size_t>(status.st_size);
  void* mapped = nullptr;
  if (size_ > 0) {
    mapped = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file, 0);
  }
  const int error = errno;
  ::close(file);  // The mapping stays valid.
  if (mapped == MAP_FAILED) fail("io.map", "cannot map", path, error);
  data_ = static_cast<char*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace hasten::detail
