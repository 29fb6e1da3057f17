// `hasten merge-weights`: joins weights in several safetensors files.
#include "hasten/checkpoint/merge_weights.h"

#include <iostream>

#include "commands/merge_weights_options.h"
#include "hasten/base/text.h"
#include "torch_commands.h"

namespace hasten::cli {

int merge_weights(int argc, char** argv) {
  const MergeWeightsCommand command = parse_merge_weights({argv + 2, argv + argc});
  const TensorDict weights = hasten::merge_weights(command.folder, command.target,
                                                   {.max_shard_size = command.max_shard_size});
  std::int64_t parameters = 0;
  for (const auto& [name, tensor] : weights) parameters += tensor.numel();
  std::cout << str("Written to ", command.target, ": ", weights.size(), " tensors, ",
                   grouped(parameters), " parameters\n");
  return 0;
}

}  // namespace hasten::cli
