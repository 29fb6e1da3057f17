// `hasten merge-weights`: joins weights in several safetensors files.
#include "hasten/checkpoint/merge_weights.h"

#include "commands/weights_options.h"
#include "torch_commands.h"
#include "written_weights.h"

namespace hasten::cli {

int merge_weights(int argc, char** argv) {
  const MergeWeightsCommand command = parse_merge_weights({argv + 2, argv + argc});
  print_written_weights(command.target,
                        hasten::merge_weights(command.folder, command.target,
                                              {.max_shard_size = command.max_shard_size}));
  return 0;
}

}  // namespace hasten::cli
