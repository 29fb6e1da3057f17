// File: process/shared_memory.h (internal)
// Memory that all ranks of a group have, where they are processes of one machine.
//
//   const auto memory = shared_memory(*store, "sum", {.rank = 0, .size = 2}, bytes);
//   if (memory) ...
//
// Nothing is left of it when its processes end, however they do: its name is gone once all have it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace hasten {

// How a rank is in a group, and how long it waits for another.
struct RankOptions {
  std::int64_t rank = 0, size = 1;
  std::chrono::milliseconds limit{};
};

class SharedMemory {
 public:
  SharedMemory(void* at, std::size_t bytes) : at_(at), bytes_(bytes) {}
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  std::byte* data() const { return static_cast<std::byte*>(at_); }
  std::size_t size() const { return bytes_; }

 private:
  void* at_;
  std::size_t bytes_;
};

// `bytes` zeros, the same for all; null in every rank where one of them cannot open it: another
// machine, another container, no room. All ranks call it; `name` once a store. Waits for the others
// within the store's timeout; throws what the store does.
std::unique_ptr<SharedMemory> shared_memory(c10d::Store& store, const std::string& name,
                                            const RankOptions& options, std::size_t bytes);

}  // namespace hasten
