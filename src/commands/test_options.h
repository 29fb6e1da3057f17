// File: commands/test_options.h (internal)
// The options of `hasten test`: its own, and all options of `hasten launch`, which configure the
// launch that is tested.
//
//   const TestCommand run = parse_test({argv + 2, argv + argc}, environment, {"hasten-torch"});
//   run.launch_arguments;  // options for `hasten launch`, "--", and the program
//
// If the options do not set the number of processes and the machine has at most one GPU, two
// processes are started, because one would test nothing. Needs no torch. Throws ConfigError
// "config.*", IoError.
#pragma once

#include <string>
#include <vector>

#include "base/internal_api.h"
#include "hasten/options/launch_options.h"

namespace hasten {

struct TestOptions {
  bool json = false;
  double timeout = 60;  // Seconds for each check.
};

struct TestCommand {
  bool help = false;
  TestOptions options;
  LaunchConfiguration launch;  // The result of launch_arguments.
  // The arguments of the `hasten launch` that starts the ranks.
  std::vector<std::string> launch_arguments;
};

// Parses the arguments after `test`; `program` is what the ranks run.
HASTEN_INTERNAL_API TestCommand parse_test(const std::vector<std::string>& arguments,
                                           const config::Environment& environment,
                                           const std::vector<std::string>& program);
HASTEN_INTERNAL_API std::string test_help(int width);

}  // namespace hasten
