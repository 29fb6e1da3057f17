// File: process/backend/call_checker.h (internal)
// Checks before each collective that all ranks are about to call the same one, for
// GroupOptions::debug. c10d's own ProcessGroupWrapper uses four collectives for this, which take
// longer than a sum of 1 MB. Here the ranks compare a number of 64 bits, and exchange descriptions
// of their calls only if the numbers differ.
//
//   checker.check(Call::of("all_reduce", tensors));
//
// Ranks on one machine compare in shared memory. Otherwise ranks compare by messages, in log2(n)
// rounds.
//
// Throws, on every rank, UsageError "process.calls-differ" if the calls differ, and IoError
// "process.rank-missing" if a rank has ended or does not call within the limit of RankOptions.
// Thread rule: one thread at a time, as for collectives.
#pragma once

#include <cstdint>
#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "process/consensus/store_exchange.h"
#include "process/watch/call_log.h"

namespace hasten {

// Compares a number over all ranks. All ranks must call it the same number of times.
class NumberComparison {
 public:
  virtual ~NumberComparison() = default;
  virtual bool is_same_on_all_ranks(std::uint64_t number) = 0;
};

// Returns a comparison that exchanges messages through the backend. Nothing else may use that
// backend.
std::unique_ptr<NumberComparison> make_message_comparison(
    c10::intrusive_ptr<c10d::Backend> backend);
// Returns a comparison in shared memory that rank 0 allocates, or null on every rank if any rank
// cannot open it. All ranks must call it.
std::unique_ptr<NumberComparison> make_shared_comparison(c10d::Store& store,
                                                         const RankOptions& options);

class CallChecker {
 public:
  CallChecker(std::unique_ptr<NumberComparison> comparison, c10::intrusive_ptr<c10d::Store> store,
              const RankOptions& options);
  void check(const Call& call);

 private:
  [[noreturn]] void throw_calls_differ(const Call& call);

  std::unique_ptr<NumberComparison> comparison_;
  c10::intrusive_ptr<c10d::Store> store_;
  RankOptions options_;
  std::int64_t checked_ = 0;
};

}  // namespace hasten
