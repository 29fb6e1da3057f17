// `hasten convert`: converts weights from PyTorch's pickles to safetensors.
#include "commands/weights_options.h"
#include "hasten/formats/pytorch_file.h"
#include "torch_commands.h"
#include "written_weights.h"

namespace hasten::cli {

int convert(int argc, char** argv) {
  const ConvertCommand command = parse_convert({argv + 2, argv + argc});
  print_written_weights(command.to,
                        convert_pytorch_weights(command.from, command.to,
                                                {.allow_pickle = command.allow_pickle,
                                                 .max_shard_size = command.max_shard_size}));
  return 0;
}

}  // namespace hasten::cli
