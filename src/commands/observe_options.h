// File: commands/observe_options.h (internal)
// The options of `hasten anatomy PROGRAM` and `hasten estimate -- PROGRAM`, which run any unchanged
// program that uses a hasten::Accelerator. The options reach the program through its environment. A
// library that these commands inject reads them, so they have no effect on other programs.
//
//   $ hasten anatomy --steps 5 --html page.html ./train --epochs 3
//   $ hasten estimate -- ./train --epochs 3                          # the same, as a dry run
//
// Needs no torch. Throws ConfigError "config.*". Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/internal_api.h"

namespace hasten {

namespace config {
struct Assignment;
}

struct ObserveOptions {
  std::int64_t steps = 3;       // Optimizer steps, after which the program ends.
  std::string output = "text";  // "text", "json", or a file in the format of its name's ending.
  // For `estimate` only: cpu, cuda:NAME (hasten/machine/gpus.h), or a device of another kind
  // (commands/predicted_device.h), such as tpu:v5e:2x2.
  std::string device = "cpu";
  bool help = false;
  std::vector<std::string> program;  // With its arguments.
};

// The environment variables that pass the options to the program.
inline constexpr const char* kObserveVariable = "HASTEN_OBSERVE_OUTPUT";  // ObserveOptions::output
// ObserveOptions::steps
inline constexpr const char* kObserveStepsVariable = "HASTEN_OBSERVE_STEPS";
inline constexpr const char* kDryRunVariable = "HASTEN_DRY_RUN";  // Device; unset in a real run.

// The JSON file with the anatomy of the same program in a dry run on the CPU. The reports of some
// devices show it next to their own figures (PredictedDevice::is_compared_with_cpu).
inline constexpr const char* kCpuPredictionVariable = "HASTEN_OBSERVE_CPU_PREDICTION";

// The path /proc/PID/fd/NUMBER of an empty file that the process PID, which runs the program, has
// inherited. A process that makes an Accelerator writes a byte to it. If the file is still empty
// when the program ends, the process says why there is no report.
inline constexpr const char* kReportMarkVariable = "HASTEN_OBSERVE_MARK";

// For `hasten plan -- PROGRAM`: a folder. A Trainer of the program reads the settings of the plan
// from kPlanSettings in this folder, a JSON object, and writes its own arguments to kPlanProgram.
inline constexpr const char* kPlanFolderVariable = "HASTEN_PLAN_FOLDER";
inline constexpr const char* kPlanSettings = "settings.json";
inline constexpr const char* kPlanProgram = "program.json";

// Parses the arguments after the subcommand; `command` is its name, for messages.
HASTEN_INTERNAL_API ObserveOptions parse_observe(const std::vector<std::string>& arguments,
                                                 const std::string& command);
HASTEN_INTERNAL_API std::string observe_help(const std::string& command, int width);

// Sets the device that --device or the option of another kind of device names; other flags have no
// effect.
void set_device(std::string& device, const config::Assignment& given);

}  // namespace hasten
