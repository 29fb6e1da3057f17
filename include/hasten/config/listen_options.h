// File: hasten/config/listen_options.h
// The options of `hasten anatomy PROGRAM` and `hasten estimate -- PROGRAM`: any program that makes
// a hasten::Accelerator, unchanged. They reach it through its environment.
//
//   hasten anatomy --steps 5 --html page.html ./train --epochs 3
//   hasten estimate -- ./train --epochs 3                        // the same, dry
//
// Needs no torch. Throws ConfigError "config.*". Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hasten {

struct ListenOptions {
  std::int64_t steps = 3;       // optimizer steps, after which the program ends
  std::string output = "text";  // text, json, or a file (.json, .html, text)
  // estimate alone: or cuda:NAME (hasten/config/gpus.h), tpu:TOPOLOGY (hasten/config/tpus.h)
  std::string device = "cpu";
  bool help = false;
  std::vector<std::string> program;  // with its arguments
};

// Names of the variables that tell the program.
inline constexpr const char* kListenVariable = "HASTEN_LISTEN";  // ListenOptions::output
inline constexpr const char* kListenStepsVariable = "HASTEN_LISTEN_STEPS";
inline constexpr const char* kDryRunVariable = "HASTEN_DRY_RUN";  // the device; unset: not dry

// For a TPU: the JSON of the anatomy that the same program had on the CPU, dry, to stand beside.
inline constexpr const char* kListenBesideVariable = "HASTEN_LISTEN_BESIDE";

// `argv` are the words after the subcommand; `command` names it in messages.
ListenOptions parse_listen(int argc, const char* const* argv, const std::string& command);
std::string anatomy_help();

}  // namespace hasten
