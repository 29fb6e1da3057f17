#include "commands/source_and_target.h"

#include <algorithm>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "options/value.h"

namespace hasten {

SourceAndTarget::SourceAndTarget(const std::vector<std::string>& words) {
  const auto first_option = std::find_if(
      words.begin(), words.end(), [](const std::string& word) { return starts_with(word, "-"); });
  count = static_cast<std::size_t>(first_option - words.begin());
  if (count > 0) from = words[0];
  if (count > 1) to = words[1];
  options.assign(first_option, words.end());
}

std::int64_t parse_shard_size(const std::string& text) {
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

}  // namespace hasten
