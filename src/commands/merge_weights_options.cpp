#include "commands/merge_weights_options.h"

#include "commands/leading_operands.h"
#include "options/help.h"
#include "options/size.h"
#include "options/sources.h"

namespace hasten {
namespace {

// The options that `hasten merge-weights` reads before it parses the size.
struct MergeWeightsFlags {
  std::string max_shard_size;
};

void describe(config::OptionTable& table, MergeWeightsFlags& flags) {
  config::Describer d(table, flags);
  d("max_shard_size", &MergeWeightsFlags::max_shard_size,
    "Write several files of at most this size, such as 5GB, with an index. Unset: one file.");
}

}  // namespace

MergeWeightsCommand parse_merge_weights(const std::vector<std::string>& arguments) {
  MergeWeightsCommand command;
  command.help = config::asks_for_help(arguments);
  if (command.help) return command;
  MergeWeightsFlags flags;
  config::OptionTable table;
  describe(table, flags);
  const std::vector<std::string> paths = read_operands(table, arguments);
  if (paths.size() != 2) {
    config::throw_missing("a folder and a target have to be named",
                          "hasten merge-weights out/checkpoint-500 merged");
  }
  command.folder = paths[0];
  command.target = paths[1];
  if (!flags.max_shard_size.empty())
    command.max_shard_size = config::parse_size("--max_shard_size", flags.max_shard_size);
  return command;
}

std::string merge_weights_help(int width) {
  MergeWeightsFlags flags;
  config::OptionTable table;
  describe(table, flags);
  return "usage: hasten merge-weights FOLDER TARGET [--NAME VALUE ...]\n\n"
         "Joins weights in several safetensors files. FOLDER has model.safetensors.index.json or\n"
         "model.safetensors, or is a checkpoint whose files hold parts of tensors. TARGET is a\n"
         "file that ends in .safetensors, or a folder, which gets model.safetensors.\n\n" +
         config::help_text(table, width);
}

}  // namespace hasten
