// File: process/shared_memory.h (internal)
// Memory that all ranks of a group have, where they are processes of one machine.
//
//   const auto memory = shared_memory(*store, "sum", {.rank = 0, .size = 2}, bytes);
//   if (memory) ...
//
// It has no name in a file system: nothing is left of it when its processes end, however they do.
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "base/descriptor.h"
#include "process/rank_options.h"

namespace hasten {

class SharedMemory {
 public:
  // A view of at least this size that begins at a multiple of it uses huge pages if the system has
  // them.
  static constexpr std::size_t kHugePage = std::size_t{1} << 21;
  // The bytes rounded up to the system's pages.
  static std::size_t whole_pages(std::size_t bytes);

  // A range of it among the addresses of this process.
  class View {
   public:
    View(void* at, std::size_t bytes) : at_(at), bytes_(bytes) {}
    View(const View&) = delete;
    View& operator=(const View&) = delete;
    ~View();

    std::byte* data() const { return static_cast<std::byte*>(at_); }
    std::size_t size() const { return bytes_; }

   private:
    void* at_;
    std::size_t bytes_;
  };

  SharedMemory(std::unique_ptr<Descriptor> file, std::unique_ptr<View> beginning)
      : file_(std::move(file)), beginning_(std::move(beginning)) {}

  // What all have had from the beginning.
  std::byte* data() const { return beginning_->data(); }
  std::size_t size() const { return beginning_->size(); }

  // More of it, anywhere behind: in whole pages, by one rank, which tells the others. Null where
  // there is no room.
  std::unique_ptr<View> take(std::int64_t offset, std::size_t bytes) const;
  // Of what a rank has taken; null where this process has no room for the addresses.
  std::unique_ptr<View> view(std::int64_t offset, std::size_t bytes) const;
  // Its pages are free at once, whoever has views of them, which nobody may use then.
  void give_back(std::int64_t offset, std::size_t bytes) const;

 private:
  std::unique_ptr<Descriptor> file_;
  std::unique_ptr<View> beginning_;
};

// `bytes` zeros, the same for all; null in every rank where one of them cannot open it (another
// machine, another container, another user) or is not `like` rank 0. All ranks call it; `name` once
// a store. Waits for the others within the store's timeout; throws what the store does.
std::unique_ptr<SharedMemory> shared_memory(c10d::Store& store, const std::string& name,
                                            const RankOptions& options, std::size_t bytes,
                                            const std::string& like = "");

}  // namespace hasten
