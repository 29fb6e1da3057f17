// File: process/shared/shared_collectives.h (internal)
// Collectives between the ranks of one machine in shared memory. Gloo sends through local sockets,
// so the system copies each byte twice and four threads wake each other. Here a rank reads what the
// other ranks have written (docs/design/012).
//
//   const auto shared = SharedCollectives::create(*store, {.rank = 0, .size = 2});
//   if (shared) shared->run(shared->reserve_ticket(), 10min, [&] { shared->sum(tensor, 0.5); });
//
// Throws UsageError "process.calls-differ" if ranks make different calls or pass different tensors,
// IoError "process.rank-missing", and IoError "process.shared-memory". After an error, all later
// calls throw the same error, and no rank waits for a rank that has thrown.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "process/shared/shared_heap.h"
#include "process/shared/shared_memory.h"
#include "process/shared/step_barrier.h"

namespace hasten {

class SharedCollectives {
 public:
  // Returns null on every rank if the ranks cannot share memory, or if some rank's `required_match`
  // differs from rank 0's. All ranks must call it, once per store.
  static std::shared_ptr<SharedCollectives> create(c10d::Store& store, const RankOptions& options,
                                                   const std::string& required_match = "");

  // True if the collectives accept the tensor. It must be dense, on the CPU, and of a type that
  // Gloo supports too, so that a program does not depend on the machines its ranks run on. The
  // answer is the same on all ranks, because it depends only on properties that must be equal on
  // all ranks.
  static bool supports(const at::Tensor& tensor);

  // Returns a tensor that sum() does not have to copy if every rank has made its tensor by this
  // function. Thread rule: any thread.
  at::Tensor empty(std::int64_t elements, const at::TensorOptions& options) {
    return heap_->empty(elements, options);
  }

  // Returns the ticket of this rank's next call, a number in the order of its collectives. Thread
  // rule: as for collectives, one thread at a time.
  std::int64_t reserve_ticket() { return next_ticket_++; }
  // Runs `call` after the calls with lower tickets have ended. It waits at most `limit` for the
  // other ranks. Thread rule: any thread.
  void run(std::int64_t ticket, std::chrono::milliseconds limit, c10::function_ref<void()> call);

  // The following functions may only be called within run(). Each waits for the other ranks.

  // Replaces the tensor by the sum of every rank's tensor times that rank's factor. The work is
  // divided: each rank adds up one share of the elements. It always adds along the same binary tree
  // of ranks, which adds neighbours first if the number of ranks is a power of two. So the result
  // has the same bits on every rank and does not depend on where shares begin. Half and bfloat16
  // are added in float, and the sum is rounded once.
  void sum(const at::Tensor& tensor, double factor = 1.0);
  // Copies every rank's `own` to `all`, which has room for all of them, in the order of ranks.
  void gather(const at::Tensor& own, const at::Tensor& all);
  // Replaces the tensor by rank `from`'s tensor.
  void broadcast(const at::Tensor& tensor, std::int64_t from);

 private:
  struct Chunk;
  struct CallDescription;
  SharedCollectives(std::shared_ptr<const SharedMemory> memory, const RankOptions& options);

  // Calls `call` for each chunk of the tensor in turn.
  void for_each_chunk(const CallDescription& description, const at::Tensor& tensor,
                      c10::function_ref<void(const Chunk&)> call);
  // Computes the sum without copies. Returns false on every rank unless all ranks have made their
  // tensors by empty().
  bool sum_in_place(const CallDescription& description, const at::Tensor& tensor);
  void sum_replicated(const Chunk& chunk, double factor);
  void sum_in_shares(const Chunk& chunk, double factor);
  // Waits until all ranks have written their data. Throws if they do not make the same call.
  void synchronize_calls(const CallDescription& own);
  [[noreturn]] void throw_calls_differ(std::int64_t rank) const;
  // The memory in which a rank writes its data of the current chunk for the others.
  std::byte* slot(std::int64_t rank) const;
  // The description of a rank's call for the current chunk.
  CallDescription& description(std::int64_t rank) const;

  std::shared_ptr<const SharedMemory> memory_;
  std::shared_ptr<SharedHeap> heap_;
  std::int64_t rank_, ranks_;
  StepBarrier barrier_;
  CallDescription* descriptions_;
  std::byte* slots_;
  std::uint32_t step_ = 0;        // the latest step of barrier_
  std::uint32_t chunk_ = 0;       // counts the chunks of all calls
  std::int64_t next_ticket_ = 0;  // the next ticket that reserve_ticket() returns

  std::mutex mutex_;
  std::condition_variable call_ended_;
  std::int64_t running_ticket_ = 0;  // the ticket of the call that runs now or next
  std::exception_ptr failure_;       // the error that all later calls throw
};

}  // namespace hasten
