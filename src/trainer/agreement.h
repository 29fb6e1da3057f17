// File: trainer/agreement.h (internal)
// Agreement between the processes of a run on the sums of a step, the requests of callbacks, and
// figures that depend on clocks. Each costs a small collective, and nothing in a single process.
#pragma once

#include <cstdint>
#include <vector>

#include "hasten/process/group.h"
#include "hasten/trainer/callback.h"

namespace hasten {

class Accelerator;

// The sums that a process contributes to an optimizer step.
struct StepTotals {
  double loss = 0;   // the sum over the items
  double items = 0;  // labels, or rows
  double tokens = 0, flos = 0;
};

// Returns the sums over all processes.
StepTotals sum_over(const Group& group, StepTotals own);

// Returns the sums over all virtual ranks of a run with elastic ranks. Each process passes the sums
// of its own virtual ranks, in order. The result has the same bits for any number of processes.
StepTotals sum_over_virtual_ranks(const Accelerator& accelerator,
                                  const std::vector<StepTotals>& own);

// Returns the sums over the batches of an evaluation. Each process passes the sums of its own
// batches, in the order of the data. The result has the same bits for any number of processes.
StepTotals sum_of_batches(const Group& group, const std::vector<StepTotals>& own);

// Replaces each count by its sum over all processes.
void sum_in_place(const Group& group, const std::vector<double*>& counts);

// Makes all processes do what one of them asks for, at the same step. The largest stop signal wins.
// `is_writing` becomes true in all processes if it is true in one.
void merge_control(const Group& group, TrainerControl& control, bool& is_writing);

// Returns after how many steps (or batches) the processes exchange figures again. They do so about
// every `wanted` seconds; the slowest process took `slowest` seconds for the last `interval`.
std::int64_t next_interval(std::int64_t interval, double slowest, double wanted);

// Gives every process the main process's figures: runtimes differ, but decisions based on them must
// not. The names must be the same everywhere.
void broadcast_metrics(const Group& group, Metrics& metrics);

}  // namespace hasten
