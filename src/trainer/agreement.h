// File: trainer/agreement.h (internal)
// Values on which the processes of a run agree: the sums of a step, the requests of callbacks, and
// figures that depend on clocks. Each costs a small collective, and nothing with a single process.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "hasten/process/group.h"
#include "hasten/trainer/callback.h"

namespace hasten {

// What a process contributes to an optimizer step.
struct StepTotals {
  double loss = 0;   // the sum over the items
  double items = 0;  // labels, or rows
  double tokens = 0, flos = 0;
};

// Returns the sums over all processes.
StepTotals sum_over(const Group& group, StepTotals own);

// Replaces each count by its sum over all processes.
void add_up(const Group& group, const std::vector<double*>& counts);

// Combines what the processes ask for: a request of one holds for all, at the same step. The
// largest stop signal wins.
void agree(const Group& group, TrainerControl& control);

// Decides in all processes together whether a signal stops an evaluation. Every process calls
// after_batch() after each batch, with the signal that it has received (0: none); the call returns
// true in all of them after the same batch.
//
// A small collective may take as long as a batch of a small model. So the processes exchange their
// signals only about twice a second, after a number of batches that follows from the longest time
// that any of them has needed since the last exchange, and that is the same in all.
class EvaluationStop {
 public:
  explicit EvaluationStop(const Group& group) : group_(group) {}
  bool after_batch(int signal);

 private:
  using Clock = std::chrono::steady_clock;

  const Group& group_;
  std::int64_t batches_ = 0;   // since the last exchange
  std::int64_t interval_ = 1;  // batches from that exchange to the next
  Clock::time_point exchanged_ = Clock::now();
};

// Replaces the figures of each process by those of the main process: runtimes differ, but decisions
// that depend on them must not. The names must be the same everywhere.
void share(const Group& group, Metrics& metrics);

}  // namespace hasten
