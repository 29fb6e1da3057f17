// File: formats/deferred_writes.h (internal)
// Takes the snapshot of an asynchronous save: copies the tensors of safetensors files now, and lets
// another thread write them later.
//
//   DeferredWrites writes;
//   {
//     const DeferredWrites::Scope scope(writes);
//     save_safetensors(staged / "model.safetensors", tensors);   // checks and copies, writes nothing
//   }
//   writes.run();                                                // writes the copies
//
// A scope defers every call of save_safetensors on its thread, including the calls of a model that
// writes files itself. The folder must be one that is being staged (hasten/base/files.h), because
// its files are incomplete until run() has returned. run() throws IoError "io.*". Thread rule: an
// object belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace hasten {

class DeferredWrites {
 public:
  class [[nodiscard]] Scope {
   public:
    explicit Scope(DeferredWrites& writes);
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();

   private:
    DeferredWrites* before_;
  };
  // Returns the writes of the calling thread's scope, or null outside a scope.
  static DeferredWrites* active();

  void add(std::function<void()> write) { writes_.push_back(std::move(write)); }
  // Frees the copies without writing them.
  void clear() { writes_.clear(); }
  // Writes the files in the order of the calls, and frees the copy of each file after writing it.
  void run();

 private:
  std::vector<std::function<void()>> writes_;
};

}  // namespace hasten
