#include "commands/convert_options.h"

#include "commands/operands.h"
#include "options/size.h"
#include "options/sources.h"

namespace hasten {

ConvertCommand parse_convert(const std::vector<std::string>& words) {
  ConvertCommand command;
  command.help = config::asks_for_help(words);
  if (command.help) return command;
  struct Options {
    std::string max_shard_size;
    bool allow_pickle = false;
  } options;
  config::OptionTable table;
  config::Describer d(table, options);
  d("max_shard_size", &Options::max_shard_size, "Write several files of at most this size.");
  d("allow_pickle", &Options::allow_pickle, "Read pickles.");
  const std::vector<std::string> paths = read_operands(table, words);
  if (paths.size() != 2) {
    config::throw_missing("a source and a target have to be named",
                          "hasten convert pytorch_model.bin model.safetensors --allow_pickle");
  }
  command.from = paths[0];
  command.to = paths[1];
  command.allow_pickle = options.allow_pickle;
  if (!options.max_shard_size.empty())
    command.max_shard_size = config::parse_size("--max_shard_size", options.max_shard_size);
  return command;
}

std::string convert_help() {
  return "usage: hasten convert SOURCE TARGET --allow_pickle [--NAME VALUE ...]\n\n"
         "Converts weights that PyTorch has pickled to safetensors. SOURCE is a file of Python's\n"
         "torch.save or of LibTorch's torch::save, or a folder with pytorch_model.bin or its\n"
         "index. TARGET is a file that ends in .safetensors, or a folder, which gets\n"
         "model.safetensors.\n\n"
         "  --allow_pickle         Read pickles. Nothing in them is executed: tensors and plain\n"
         "                         values are read, and everything else is refused. [off]\n"
         "  --max_shard_size SIZE  Write several files of at most SIZE bytes, such as 5GB, with "
         "an\n"
         "                         index. [one file]\n";
}

}  // namespace hasten
