// File: base/descriptor.h (internal)
#pragma once

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace hasten {

// Owns a file descriptor, so that exceptions close it. A negative one is ignored. Closing keeps
// errno, so that a function can return -1 with the errno of the call that has failed.
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
  // Gives the file to the caller.
  int release() { return std::exchange(file_, -1); }

 private:
  int file_ = -1;
};

}  // namespace hasten
