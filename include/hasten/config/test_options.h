// File: hasten/config/test_options.h
// The options of `hasten test`: its own few, and all of `hasten launch`, which are the thing to be
// tested.
//
//   const TestCommand run = parse_test(argc - 2, argv + 2, environment, {"hasten-torch"});
//   run.words      // of the `hasten launch` that starts the ranks, the program behind them
//
// Where nothing says how many processes, and there is one GPU or none, two are started: one proves
// nothing. Needs no torch. Throws ConfigError "config.*", IoError. Thread rule: values and pure
// functions but for the files they read.
#pragma once

#include <string>
#include <vector>

#include "hasten/config/launch_options.h"

namespace hasten {

struct TestOptions {
  bool json = false;
  double timeout = 60;  // seconds for each check
};

struct TestCommand {
  bool help = false;
  TestOptions options;
  LaunchConfiguration launch;  // what the words come to
  std::vector<std::string> words;
};

// `argv` are the words after the subcommand; `program` is what the ranks run.
TestCommand parse_test(int argc, const char* const* argv, const config::Environment& environment,
                       const std::vector<std::string>& program);
std::string test_help();

}  // namespace hasten
