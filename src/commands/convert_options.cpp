#include "commands/convert_options.h"

#include "commands/leading_operands.h"
#include "options/help.h"
#include "options/size.h"
#include "options/sources.h"

namespace hasten {
namespace {

// The options that `hasten convert` reads before it parses the size.
struct ConvertFlags {
  bool allow_pickle = false;
  std::string max_shard_size;
};

void describe(config::OptionTable& table, ConvertFlags& flags) {
  config::Describer d(table, flags);
  d("allow_pickle", &ConvertFlags::allow_pickle,
    "Read pickles. Nothing in them is executed: tensors and plain values are read, and everything "
    "else is refused.");
  d("max_shard_size", &ConvertFlags::max_shard_size,
    "Write several files of at most this size, such as 5GB, with an index. Unset: one file.");
}

}  // namespace

ConvertCommand parse_convert(const std::vector<std::string>& arguments) {
  ConvertCommand command;
  command.help = config::asks_for_help(arguments);
  if (command.help) return command;
  ConvertFlags flags;
  config::OptionTable table;
  describe(table, flags);
  const std::vector<std::string> paths = read_operands(table, arguments);
  if (paths.size() != 2) {
    config::throw_missing("a source and a target have to be named",
                          "hasten convert pytorch_model.bin model.safetensors --allow_pickle");
  }
  command.from = paths[0];
  command.to = paths[1];
  command.allow_pickle = flags.allow_pickle;
  if (!flags.max_shard_size.empty())
    command.max_shard_size = config::parse_size("--max_shard_size", flags.max_shard_size);
  return command;
}

std::string convert_help(int width) {
  ConvertFlags flags;
  config::OptionTable table;
  describe(table, flags);
  return "usage: hasten convert SOURCE TARGET --allow_pickle [--NAME VALUE ...]\n\n"
         "Converts weights that PyTorch has pickled to safetensors. SOURCE is a file of Python's\n"
         "torch.save or of LibTorch's torch::save, or a folder with pytorch_model.bin or its\n"
         "index. TARGET is a file that ends in .safetensors, or a folder, which gets\n"
         "model.safetensors.\n\n" +
         config::help_text(table, width);
}

}  // namespace hasten
