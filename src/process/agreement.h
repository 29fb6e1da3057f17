// File: process/agreement.h (internal)
// Whether all ranks are about to call the same collective, asked before each: what
// GroupOptions::debug does. c10d's own ProcessGroupWrapper asks with four collectives, which takes
// longer than a sum of 1 MB; here a number of 64 bits goes round, and only where it differs the
// words behind it.
//
//   agreement.check(Call::of("all_reduce", tensors));
//
// Ranks of one machine compare in memory that they share; others by messages, in log2(n) rounds.
//
// Throws, in every rank, UsageError "process.calls-differ"; IoError "process.rank-missing" where a
// rank has ended or does not come. Thread rule: one thread at a time, as for collectives.
#pragma once

#include <cstdint>
#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "process/call.h"
#include "process/rank_options.h"

namespace hasten {

// Whether a number is the same on all ranks. All of them ask, equally often.
class Comparison {
 public:
  virtual ~Comparison() = default;
  virtual bool same(std::uint64_t number) = 0;
};

// By messages of a backend which nobody else uses.
std::unique_ptr<Comparison> comparison_by_messages(c10::intrusive_ptr<c10d::Backend> backend);
// In shared memory that rank 0 makes; nothing where some rank cannot open it. All ranks call it.
std::unique_ptr<Comparison> comparison_in_memory(c10d::Store& store, const RankOptions& options);

class Agreement {
 public:
  Agreement(std::unique_ptr<Comparison> comparison, c10::intrusive_ptr<c10d::Store> store,
            const RankOptions& options);
  void check(const Call& call);

 private:
  [[noreturn]] void tell_difference(const Call& call);

  std::unique_ptr<Comparison> comparison_;
  c10::intrusive_ptr<c10d::Store> store_;
  RankOptions options_;
  std::int64_t checked_ = 0;
};

}  // namespace hasten
