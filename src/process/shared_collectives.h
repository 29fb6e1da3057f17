// File: process/shared_collectives.h (internal)
// Collectives of the ranks of one machine, in memory that all of them have. Gloo sends through
// sockets of the same machine, where the system copies each byte twice and four threads wake each
// other; here a rank reads what the others wrote (docs/design/012).
//
//   const auto shared = SharedCollectives::over(*store, {.rank = 0, .size = 2});
//   if (shared) shared->run(shared->line_up(), 10min, [&] { shared->sum(tensor, 0.5); });
//
// Throws UsageError "process.calls-differ" where ranks have other tensors or other calls of these,
// IoError "process.rank-missing"; all later calls then throw the same, and no rank waits for one
// that has thrown.
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

#include "process/seats.h"
#include "process/shared_heap.h"
#include "process/shared_memory.h"

namespace hasten {

class SharedCollectives {
 public:
  // Null in every rank where they cannot share memory, or are not `like` rank 0. All ranks call it;
  // once a store.
  static std::shared_ptr<SharedCollectives> over(c10d::Store& store, const RankOptions& options,
                                                 const std::string& like = "");

  // Whether such a tensor can be in them: on the CPU, dense, of a type that Gloo knows too, so that
  // a program does not hang on where its ranks are. As it looks only at what ranks must agree on,
  // all take the same way.
  static bool takes(const at::Tensor& tensor);

  // A tensor that sum() need not copy, where every rank has made its own here. Thread rule: any
  // thread.
  at::Tensor empty(std::int64_t elements, const at::TensorOptions& options) {
    return heap_->empty(elements, options);
  }

  // The place of the next call in the order in which this rank makes them: that of its collectives.
  // Thread rule: as for collectives, one thread at a time.
  std::int64_t line_up() { return given_++; }
  // Calls when those in front have ended, and waits `limit` at most for the other ranks. Thread
  // rule: any thread.
  void run(std::int64_t place, std::chrono::milliseconds limit, c10::function_ref<void()> call);

  // Within run() only; each waits for the other ranks.

  // In place: the sum of every rank's tensor times its factor. It is divided: each rank adds up one
  // part, from rank 0's to the last one's, whatever the part, so the result has the same bits in
  // every rank and does not hang on where parts begin. Half and bfloat16 are added in float and
  // rounded once.
  void sum(const at::Tensor& tensor, double factor = 1.0);
  // all: as many elements as `own` has, a rank, one rank's behind the other's.
  void gather(const at::Tensor& own, const at::Tensor& all);
  void broadcast(const at::Tensor& tensor, std::int64_t from);

 private:
  struct Piece;
  struct Ticket;
  SharedCollectives(std::shared_ptr<const SharedMemory> memory, const RankOptions& options);

  // The tensor's pieces, one after the other.
  void by_pieces(const Ticket& ticket, const at::Tensor& tensor,
                 c10::function_ref<void(const Piece&)> call);
  // False in every rank where not all of them have made it by empty().
  bool sum_where_it_is(const Ticket& ticket, const at::Tensor& tensor);
  void sum_whole(const Piece& piece, double factor);
  void sum_divided(const Piece& piece, double factor);
  // All have written what they give; throws where they do not call the same.
  void meet(const Ticket& own);
  [[noreturn]] void tell_difference(std::int64_t rank) const;
  // What a rank writes for the others in this step.
  std::byte* slot(std::int64_t rank) const;
  Ticket& ticket(std::int64_t rank) const;

  std::shared_ptr<const SharedMemory> memory_;
  std::shared_ptr<SharedHeap> heap_;
  std::int64_t rank_, ranks_;
  Seats seats_;
  Ticket* tickets_;
  std::byte* slots_;
  std::uint32_t step_ = 0;   // of the seats
  std::uint32_t piece_ = 0;  // of all calls
  std::int64_t given_ = 0;

  std::mutex mutex_;
  std::condition_variable next_;
  std::int64_t turn_ = 0;
  std::exception_ptr failure_;
};

}  // namespace hasten
