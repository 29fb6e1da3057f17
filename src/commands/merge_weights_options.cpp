#include "commands/merge_weights_options.h"

#include <algorithm>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "options/sources.h"
#include "options/value.h"

namespace hasten {
namespace {

// Parses a number of bytes, such as 5GB or 200MiB, as Hugging Face writes it.
std::int64_t parse_bytes(const std::string& text) {
  constexpr std::pair<const char*, std::int64_t> kUnits[] = {{"GiB", std::int64_t{1} << 30},
                                                             {"MiB", 1 << 20},
                                                             {"KiB", 1 << 10},
                                                             {"GB", 1'000'000'000},
                                                             {"MB", 1'000'000},
                                                             {"KB", 1'000},
                                                             {"", 1}};
  for (const auto& [unit, factor] : kUnits) {
    if (!ends_with(text, unit)) continue;
    const auto number =
        config::parse_integer(text.substr(0, text.size() - std::string(unit).size()));
    std::int64_t bytes = 0;
    if (number && *number > 0 && !__builtin_mul_overflow(*number, factor, &bytes)) return bytes;
    break;
  }
  throw ConfigError("config.bad-value", {.what = "--max_shard_size",
                                         .got = "'" + text + "'",
                                         .expected = "a number of bytes above 0, such as 5GB"});
}

}  // namespace

MergeWeightsCommand parse_merge_weights(const std::vector<std::string>& words) {
  MergeWeightsCommand command;
  const auto is_help = [](const std::string& word) { return word == "--help" || word == "-h"; };
  command.help = std::any_of(words.begin(), words.end(), is_help);
  if (command.help) return command;
  const auto first_option = std::find_if(
      words.begin(), words.end(), [](const std::string& word) { return starts_with(word, "-"); });
  struct Texts {
    std::string max_shard_size;
  } texts;
  config::OptionTable table;
  config::Describer d(table, texts);
  d("max_shard_size", &Texts::max_shard_size, "Write several files of at most this size.");
  std::vector<std::string> notices;
  config::resolve(table, {config::read_flags(table, {first_option, words.end()})}, notices);
  if (first_option - words.begin() != 2) {
    config::throw_missing("a folder and a target have to be named",
                          "hasten merge-weights out/checkpoint-500 merged");
  }
  command.folder = words[0];
  command.target = words[1];
  if (!texts.max_shard_size.empty()) command.max_shard_size = parse_bytes(texts.max_shard_size);
  return command;
}

std::string merge_weights_help() {
  return "usage: hasten merge-weights FOLDER TARGET [--NAME VALUE ...]\n\n"
         "Joins weights in several safetensors files. FOLDER has model.safetensors.index.json or\n"
         "model.safetensors, or is a checkpoint whose files hold parts of tensors. TARGET is a\n"
         "file that ends in .safetensors, or a folder, which gets model.safetensors.\n\n"
         "  --max_shard_size SIZE  Write several files of at most SIZE bytes, such as 5GB, with "
         "an\n"
         "                         index. [one file]\n";
}

}  // namespace hasten
