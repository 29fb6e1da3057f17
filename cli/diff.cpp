// `hasten diff`: finds the first step and tensor in which two runs differ.
#include <iostream>

#include "commands/diff_options.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/hash_chain.h"
#include "torch_commands.h"

namespace hasten::cli {
namespace {

std::string counted_text(std::size_t count, const char* what) {
  return str(count, ' ', what, count == 1 ? "" : "s");
}

}  // namespace

int diff(int argc, char** argv) {
  const DiffCommand command = parse_diff({argv + 2, argv + argc});
  const RunComparison result = compare_runs(command.a, command.b, command.from);
  const std::string equal = str(counted_text(result.links, "link"), " and ",
                                counted_text(result.checkpoints, "checkpoint"));
  if (!result.difference) {
    std::cout << str("equal: ", equal, ", up to step ", result.last_step, '\n');
    return 0;
  }
  const RunDifference& parted = *result.difference;
  std::cout << str("different from step ", parted.step, " on: ", parted.part,
                   parted.other_parts > 0 ? str(" and ", parted.other_parts, " others") : "",
                   "\nequal before: ", equal, '\n');
  return 1;
}

}  // namespace hasten::cli
