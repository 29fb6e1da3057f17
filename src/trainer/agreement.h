// File: trainer/agreement.h (internal)
// What the processes of a run know alike: the sums of a step, what callbacks have asked for, and
// figures that clocks had a part in. Each is a small collective, and nothing in a run of one.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "hasten/process/group.h"
#include "hasten/trainer/callback.h"

namespace hasten {

// What a process adds to an optimizer step.
struct StepTotals {
  double loss = 0;   // of each item, added up
  double items = 0;  // labels, or rows
  double tokens = 0, flos = 0;
};

StepTotals sum_over(const Group& group, StepTotals own);

// Counts of each process become the sums over all.
void add_up(const Group& group, const std::vector<double*>& counts);

// What one process asks for, all do: at the same step. Of several signals the greatest counts.
void agree(const Group& group, TrainerControl& control);

// Whether a signal stops an evaluation. Asked in all processes after each batch, with the signal of
// this one (0: none); true in all of them after the same batch.
//
// A small collective may take as long as a batch of a small model. So the processes exchange their
// signals about twice a second, after a number of batches that follows from the slowest process's
// time since the last exchange, and that all know alike.
class EvaluationStop {
 public:
  explicit EvaluationStop(const Group& group) : group_(group) {}
  bool after_batch(int signal);

 private:
  using Clock = std::chrono::steady_clock;

  const Group& group_;
  std::int64_t batches_ = 0;   // since the last exchange
  std::int64_t interval_ = 1;  // between that and the next
  Clock::time_point exchanged_ = Clock::now();
};

// The main process's figures in all: runtimes differ, and what is decided by them must not. The
// names are the same everywhere.
void share(const Group& group, Metrics& metrics);

}  // namespace hasten
