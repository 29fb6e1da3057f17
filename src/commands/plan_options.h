// File: commands/plan_options.h (internal)
// The options of `hasten plan`: a limit of memory and the techniques to choose from, and the
// options of `hasten estimate` and `hasten train`, which describe the step to start from.
//
//   $ hasten plan --memory 4GiB bert-base --batch 32 --seq 128
//   $ hasten plan --memory 16GiB --device cuda:v100-16gb bert-large --batch 8 --keep_effective_batch
//   $ hasten plan --memory 4GiB -- ./train --epochs 3        # a program with a Trainer
//   $ hasten plan --what_if bert-base --batch 32             # each change alone
//
// Needs no torch. Throws ConfigError and IoError like parse_estimate. Thread rule: pure functions,
// except that configuration files are read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/internal_api.h"
#include "commands/estimate_options.h"
#include "hasten/options/detail/exactness.h"

namespace hasten {

struct PlanConfiguration {
  // If there is a program, only its device, json, what_if, devices and help are set.
  EstimateConfiguration step;
  std::string memory;             // As the user wrote it, such as 16GiB.
  std::int64_t memory_bytes = 0;  // 0 means no limit, for what_if on the CPU.
  bool keep_effective_batch = false;
  Exactness exactness = Exactness::rounding;
  std::vector<std::string> use, avoid;
  std::string yaml = "memory_plan.yaml";  // The file of the training arguments; empty for none.
  bool techniques = false;                // List the techniques.
  std::vector<std::string> program;       // With its arguments; empty if a model is given.
};

// Parses the arguments after `plan`.
HASTEN_INTERNAL_API PlanConfiguration parse_plan(const std::vector<std::string>& arguments,
                                                 const config::Environment& environment);
HASTEN_INTERNAL_API std::string plan_help(int width);

}  // namespace hasten
