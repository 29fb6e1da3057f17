// `hasten diff`: finds the first step and tensor in which two runs differ.
#include <cstdint>
#include <iostream>

#include "base/count_text.h"
#include "commands/diff_options.h"
#include "commands/existing_paths.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/hash_chain.h"
#include "torch_commands.h"

namespace hasten::cli {

int diff(int argc, char** argv) {
  const DiffCommand command = parse_diff({argv + 2, argv + argc});
  for (const std::string& run : {command.a, command.b}) check_path_exists(run);
  const RunComparison result = compare_runs(command.a, command.b, command.from);
  const std::string equal =
      str(count_text(static_cast<std::int64_t>(result.links), "link"), " and ",
          count_text(static_cast<std::int64_t>(result.checkpoints), "checkpoint"));
  if (!result.difference) {
    std::cout << str("equal: ", equal, ", up to step ", result.last_step, '\n');
    return 0;
  }
  const RunDifference& difference = *result.difference;
  std::cout << str(
      "different from step ", difference.step, " on: ", difference.part,
      difference.other_parts > 0
          ? " and " + count_text(static_cast<std::int64_t>(difference.other_parts), "other")
          : "",
      "\nequal before: ", equal, '\n');
  return 1;
}

}  // namespace hasten::cli
