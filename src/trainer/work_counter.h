// File: trainer/work_counter.h (internal)
// Counts the floating-point operations and the tokens of batches, if the module knows them
// (hasten/models/training_traits.h). Work that it does not know is not counted; this is logged
// once.
//
//   counter.count(rows, totals);
//
// Thread rule: one thread at a time.
#pragma once

#include "hasten/models/training_traits.h"
#include "hasten/options/training_arguments.h"
#include "hasten/process/detail/logger.h"
#include "trainer/agreement.h"
#include "trainer/rows.h"

namespace hasten {

class WorkCounter {
 public:
  // `traits` is null for a module that has none.
  WorkCounter(const TrainingTraits* traits, CountTokens tokens, Logger& logger)
      : traits_(traits), tokens_(tokens), logger_(logger) {}

  void count(const RealRows& rows, StepTotals& totals);
  // True if the operations of every batch were known.
  bool knows_flos() const { return knows_flos_; }

 private:
  const TrainingTraits* traits_;
  CountTokens tokens_;
  Logger& logger_;
  bool knows_flos_ = true;
};

}  // namespace hasten
