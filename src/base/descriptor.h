// File: base/descriptor.h (internal)
// Owns a file descriptor. Thread rule: one thread at a time.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

namespace hasten {

// Owns a file descriptor, so that exceptions close it. A negative one is ignored. Closing preserves
// errno, so that a function can return -1 with the errno of the call that failed.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int file) : file_(file) {}
  Descriptor(Descriptor&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(file_, other.file_);
    other.close();
    return *this;
  }
  ~Descriptor() { close(); }

  int get() const { return file_; }
  // Closes the file now. get() is -1 afterwards.
  void close() {
    if (file_ < 0) return;
    const int error = errno;
    ::close(std::exchange(file_, -1));
    errno = error;
  }
  // Gives the ownership of the file to the caller.
  int release() { return std::exchange(file_, -1); }

 private:
  int file_ = -1;
};

// Writes all bytes, and continues after a signal. Returns false, with errno set, if a write fails.
// A signal handler may call it.
inline bool write_all(int file, std::string_view bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = ENOSPC;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace hasten
