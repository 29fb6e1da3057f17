#include "commands/weights_options.h"

#include "commands/command_operands.h"
#include "options/help.h"
#include "options/size.h"
#include "options/sources.h"

namespace hasten {
namespace {

// The options before the size is parsed.
struct WeightsFlags {
  bool allow_pickle = false;  // of `hasten convert` only
  std::string max_shard_size;

  std::optional<std::int64_t> shard_bytes() const {
    if (max_shard_size.empty()) return std::nullopt;
    return config::parse_size("--max_shard_size", max_shard_size);
  }
};

void describe_merge_weights(config::OptionTable& table, WeightsFlags& flags) {
  config::Describer d(table, flags);
  d("max_shard_size", &WeightsFlags::max_shard_size,
    "Write several files of at most this size, such as 5GB, with an index. If unset, write "
    "one file.");
}

void describe_convert(config::OptionTable& table, WeightsFlags& flags) {
  config::Describer d(table, flags);
  d("allow_pickle", &WeightsFlags::allow_pickle,
    "Read pickles. Nothing in them is executed: tensors and plain values are read, and everything "
    "else is refused.");
  describe_merge_weights(table, flags);
}

}  // namespace

ConvertCommand parse_convert(const std::vector<std::string>& arguments) {
  ConvertCommand command;
  command.help = config::asks_for_help(arguments);
  if (command.help) return command;
  WeightsFlags flags;
  config::OptionTable table;
  describe_convert(table, flags);
  const std::vector<std::string> paths = read_operands(table, arguments);
  if (paths.size() != 2) {
    config::throw_missing("a source and a target have to be named",
                          "hasten convert pytorch_model.bin model.safetensors --allow_pickle");
  }
  command.from = paths[0];
  command.to = paths[1];
  command.allow_pickle = flags.allow_pickle;
  command.max_shard_size = flags.shard_bytes();
  return command;
}

MergeWeightsCommand parse_merge_weights(const std::vector<std::string>& arguments) {
  MergeWeightsCommand command;
  command.help = config::asks_for_help(arguments);
  if (command.help) return command;
  WeightsFlags flags;
  config::OptionTable table;
  describe_merge_weights(table, flags);
  const std::vector<std::string> paths = read_operands(table, arguments);
  if (paths.size() != 2) {
    config::throw_missing("a folder and a target have to be named",
                          "hasten merge-weights out/checkpoint-500 merged");
  }
  command.folder = paths[0];
  command.target = paths[1];
  command.max_shard_size = flags.shard_bytes();
  return command;
}

std::string convert_help(int width) {
  WeightsFlags flags;
  config::OptionTable table;
  describe_convert(table, flags);
  return "usage: hasten convert SOURCE TARGET --allow_pickle [--NAME VALUE ...]\n\n"
         "Converts weights that PyTorch has pickled to safetensors. SOURCE is a file of Python's\n"
         "torch.save or of LibTorch's torch::save, or a folder with pytorch_model.bin or its\n"
         "index. TARGET is a file that ends in .safetensors, or a folder, which gets\n"
         "model.safetensors.\n\n" +
         config::help_text(table, width);
}

std::string merge_weights_help(int width) {
  WeightsFlags flags;
  config::OptionTable table;
  describe_merge_weights(table, flags);
  return "usage: hasten merge-weights FOLDER TARGET [--NAME VALUE ...]\n\n"
         "Joins weights in several safetensors files. FOLDER has model.safetensors.index.json or\n"
         "model.safetensors, or is a checkpoint whose files hold parts of tensors. TARGET is a\n"
         "file that ends in .safetensors, or a folder, which gets model.safetensors.\n\n" +
         config::help_text(table, width);
}

}  // namespace hasten
