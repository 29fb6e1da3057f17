// File: trainer/agreement.h (internal)
// What the processes of a run know alike: the sums of a step, what callbacks have asked for, and
// figures that clocks had a part in. Each is a small collective, and nothing in a run of one.
#pragma once

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

// The main process's figures in all: runtimes differ, and what is decided by them must not. The
// names are the same everywhere.
void share(const Group& group, Metrics& metrics);

}  // namespace hasten
