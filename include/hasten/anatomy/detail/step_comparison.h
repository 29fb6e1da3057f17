// File: hasten/anatomy/detail/step_comparison.h
// Compares a training step with variants of it that differ in one change each, and shows the
// comparison.
//
//   const anatomy::StepComparison comparison = compare_changes({.step = {.model = "bert-base"}});
//   std::cout << to_text(comparison);
//
// compare_changes (hasten/plan/plan.h) makes it. A Report or a TpuEstimate that has one shows it in
// its own formats. Units: bytes, seconds. Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/options/detail/exactness.h"

namespace hasten::anatomy {

struct StepCost {
  std::int64_t bytes = 0;  // The memory of tensors on the CPU, or of everything on a GPU or TPU.
  double seconds = 0;      // The time of an optimizer step; 0 if unknown.
};

// The step with one change.
struct StepChange {
  std::string name;    // "adamw_8bit", "batches of 4 rows, 2 in a step"
  std::string effect;  // A sentence: what the change does and costs.
  Exactness exactness = Exactness::exact;
  StepCost cost;
  std::string rejection_reason;  // Why the step cannot be made with it; empty if it can.
};

struct StepComparison {
  std::string model, device;
  std::int64_t rows = 0, accumulation = 1;
  // The limit, and the part of it that the program takes without tensors. `memory` is 0 if there is
  // no limit.
  std::int64_t memory = 0, process = 0;
  StepCost baseline;  // The step without a change; 0 bytes if it cannot be made.
  std::vector<StepChange> changes;
};

// A table for a terminal, and the reasons of the rejected changes below it.
HASTEN_API std::string to_text(const StepComparison& comparison);
// The keys are the names of the fields.
HASTEN_API std::string to_json(const StepComparison& comparison);

}  // namespace hasten::anatomy
