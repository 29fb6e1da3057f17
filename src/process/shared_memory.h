// File: process/shared_memory.h (internal)
// Memory that all ranks of a group have, where they are processes of one machine.
//
//   const auto memory = shared_memory(*store, "sum", {.rank = 0, .size = 2}, bytes);
//   if (memory) ...
//
// It has no name in a file system: nothing is left of it when its processes end, however they do.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "process/rank_options.h"

namespace hasten {

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

// `bytes` zeros, the same for all; null in every rank where one of them cannot open it (another
// machine, another container, another user) or is not `like` rank 0. All ranks call it; `name` once
// a store. Waits for the others within the store's timeout; throws what the store does.
std::unique_ptr<SharedMemory> shared_memory(c10d::Store& store, const std::string& name,
                                            const RankOptions& options, std::size_t bytes,
                                            const std::string& like = "");

}  // namespace hasten
