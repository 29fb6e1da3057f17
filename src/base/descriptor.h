// File: base/descriptor.h (internal)
#pragma once

#include <unistd.h>

namespace hasten {

// Owns a file descriptor, so that exceptions close it. A negative one is ignored.
class Descriptor {
 public:
  explicit Descriptor(int file) : file_(file) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (file_ >= 0) ::close(file_);
  }
  int get() const { return file_; }

 private:
  int file_;
};

}  // namespace hasten
