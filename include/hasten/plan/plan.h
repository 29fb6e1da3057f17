// File: hasten/plan/plan.h
// Chooses the techniques that make a training step fit a memory limit and run as fast as possible.
//
//   const StepPlan plan = plan_step({.step = {.model = "bert-base",
//                                             .length = 128,
//                                             .arguments = {.per_device_train_batch_size = 32}},
//                                    .memory = std::int64_t{4} << 30});
//   std::cout << to_text(plan);
//   write_file_atomically("memory_plan.yaml", to_yaml(plan));      // hasten train --config_file memory_plan.yaml
//   std::cout << to_text(compare_changes({.step = {.model = "bert-base"}}));   // each change alone
//
// The search combines the techniques of a table (src/plan/techniques.cpp): at most one of each
// group, and none that contradicts the options. Memory is measured in dry runs of the step itself.
// Time comes from a model. On the CPU, each distinct operator call of the step is timed on operands
// of its shapes until the budget is used up, and the remaining calls are given the efficiency of
// their group. On a GPU, the model assumes that every operator runs at a share of its roof, and
// that copies to host memory run at a share of the link's rate. A less exact plan is chosen only if
// it is faster by more than the model's error. docs/plan.md explains the search and its accuracy.
//
// Units: bytes, seconds. Throws ConfigError "plan.contradiction", "plan.unknown-technique",
// MemoryError "plan.too-small" if not even one row fits with any combination, and what estimate()
// throws. Thread rule: one call at a time in a process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "hasten/anatomy/detail/step_comparison.h"
#include "hasten/base/detail/export.h"
#include "hasten/options/detail/exactness.h"
#include "hasten/trainer/estimate.h"

namespace hasten {

// Names and values of training arguments.
using PlanSettings = std::vector<std::pair<std::string, std::string>>;

using StepCost = anatomy::StepCost;

// Predicts the step with these settings and batches.
using StepPredictor = std::function<StepCost(const PlanSettings& settings, std::int64_t rows,
                                             std::int64_t accumulation)>;

struct PlanOptions {
  EstimateOptions step = {};         // The model and the arguments to start from.
  std::int64_t memory = 0;           // The limit.
  std::int64_t process = 0;          // The part of it that the program takes without tensors.
  bool keep_effective_batch = true;  // If false, a step may have fewer rows if that is faster.
  Exactness exactness = Exactness::rounding;      // The least exact techniques that are considered.
  std::vector<std::string> use = {}, avoid = {};  // Names of techniques.
  double budget = 2;  // Approximate seconds spent on timing operators; CPU only.
  // Predicts steps instead of dry runs of `step`, for example for another program.
  StepPredictor predictor = {};
};

// One stage between the options and the plan. It includes the changes of all earlier stages.
struct PlanStage {
  std::string change;  // "adamw_8bit", "batches of 8, 4 accumulated"
  std::string effect;  // A sentence: what it costs in exactness, and what it does.
  Exactness exactness = Exactness::exact;
  StepCost cost;
  std::int64_t rows = 0, accumulation = 1;
};

struct StepPlan {
  std::vector<PlanStage> stages;  // The first is the step without changes.
  PlanSettings settings;          // The changes of the plan, without the batches.
  // The options of `hasten train` for the model and the rows of the step, with values in JSON.
  PlanSettings model_settings;
  std::vector<std::string> techniques;
  std::int64_t rows = 0, accumulation = 1;
  StepCost cost;
  // The next larger batch and its memory; 0 if there is none.
  std::int64_t next_rows = 0, next_bytes = 0;
  std::int64_t memory = 0, process = 0;
  std::int64_t combinations = 0, predictions = 0;  // Considered, and made by dry runs.
  std::string model, device;
  TrainingArguments arguments;  // From the options, with the plan's changes.
  double seconds = 0;           // The time of the search.
};

HASTEN_API StepPlan plan_step(const PlanOptions& options);
// Formats the stages as a table for a terminal.
HASTEN_API std::string to_text(const StepPlan& plan);
HASTEN_API std::string to_json(const StepPlan& plan);
// Formats the training arguments of the plan and its model_settings as a file for `hasten train
// --config_file`. Defaults are left out.
HASTEN_API std::string to_yaml(const StepPlan& plan);

// Called with the name of each change before it is predicted.
using OnChange = std::function<void(const std::string&)>;

// Predicts the step with one change at a time: with each technique; without each technique that the
// step already uses, unless that is the default; with half the batch, accumulated twice as often;
// and with half the length. `use`, `avoid`, `exactness` and `keep_effective_batch` are ignored. The
// step may also be an inference or a generation, or a step on a TPU, which is predicted without
// times. For a TPU, each prediction runs in a fork of this process: call this function before
// anything opens a TPU, otherwise it throws UsageError "process.fork-after-tpu". A fork that fails
// throws RankError.
HASTEN_API anatomy::StepComparison compare_changes(const PlanOptions& options,
                                                   const OnChange& on_begin = {});

// Returns the cost of the step in an anatomy's JSON (to_json of a Report), such as the file that
// `hasten estimate --output FILE.json -- PROGRAM` writes. The time is the roofline's time divided
// by usual efficiencies; on the CPU, the roofs of this machine are measured. Throws DataError
// "plan.report".
HASTEN_API StepCost read_step_cost(const std::string& report_json);

// The names and effects of all techniques, as a table for a terminal.
HASTEN_API std::string techniques_text();

}  // namespace hasten
