// Helpers for fuzzers of files: a file and a folder in memory for readers that take a path, and a
// limit for the memory that a reader may use.
#pragma once

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void*,
                                                                           std::size_t),
                                                         void (*on_free)(const volatile void*));
extern "C" std::size_t __sanitizer_get_allocated_size(const volatile void*);

namespace hasten::fuzz {

// A file in memory that has no name in a folder. path() returns a path to it.
class MemoryFile {
 public:
  MemoryFile() : file_(::memfd_create("input", MFD_CLOEXEC)) {
    if (file_ < 0) std::abort();
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }
  void write(std::string_view bytes) const {
    if (::ftruncate(file_, 0) != 0 ||
        ::pwrite(file_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
      std::abort();
  }

 private:
  int file_;
};

// A folder in memory, for readers that need a file with a certain name. The destructor deletes it.
// Make the object static, because a fuzzer ends with exit().
class MemoryFolder {
 public:
  MemoryFolder() {
    std::string name = "/dev/shm/hasten-fuzz-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  MemoryFolder(const MemoryFolder&) = delete;
  MemoryFolder& operator=(const MemoryFolder&) = delete;
  ~MemoryFolder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }
  // Writes a file, and returns its path.
  std::filesystem::path write(const char* name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

// The bytes that are allocated now, and the largest number of bytes that were allocated at the same
// time.
inline std::atomic<std::int64_t> allocated = 0, peak_allocated = 0;

inline void count_allocation(const volatile void*, std::size_t size) {
  const std::int64_t now = allocated += static_cast<std::int64_t>(size);
  if (now > peak_allocated) peak_allocated = now;
}
inline void count_release(const volatile void* memory) {
  if (memory != nullptr)
    allocated -= static_cast<std::int64_t>(__sanitizer_get_allocated_size(memory));
}

// The destructor aborts if the memory allocated since the constructor exceeded the size of the file
// by more than 16 MiB.
class MemoryLimit {
 public:
  explicit MemoryLimit(std::size_t file_size) : file_size_(static_cast<std::int64_t>(file_size)) {
    static const int is_installed =
        __sanitizer_install_malloc_and_free_hooks(count_allocation, count_release);
    if (is_installed == 0) std::abort();
    begin_ = allocated;
    peak_allocated = begin_;
  }
  ~MemoryLimit() {
    const std::int64_t used = peak_allocated - begin_;
    if (used <= file_size_ + (std::int64_t{16} << 20)) return;
    std::fprintf(stderr, "reading %lld bytes took %lld bytes of memory\n",
                 static_cast<long long>(file_size_), static_cast<long long>(used));
    std::abort();
  }

 private:
  std::int64_t file_size_, begin_ = 0;
};

}  // namespace hasten::fuzz
