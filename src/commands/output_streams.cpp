#include "commands/output_streams.h"

#include <algorithm>
#include <optional>

#include "base/parse_number.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

constexpr std::int64_t kMaxProcesses = 4096;  // on one machine

std::optional<std::int64_t> number(const std::string& text, std::int64_t limit) {
  const auto value = parse_number<std::int64_t>(text);
  return value && *value >= 0 && *value < limit ? value : std::nullopt;
}

[[noreturn]] void throw_invalid(const std::string& option, const std::string& text,
                                const char* expected) {
  throw ConfigError("config.bad-value",
                    {.what = option, .got = "'" + text + "'", .expected = expected});
}

constexpr const char* kExpected =
    "0, 1, 2 or 3 (none, output, errors, both), or one per local rank, such as 0:3,1:1";

}  // namespace

bool Streams::any() const {
  return all_ != 0 || std::any_of(by_rank_.begin(), by_rank_.end(),
                                  [](const auto& each) { return each.second != 0; });
}

bool Streams::has(std::int64_t local_rank, int stream) const {
  const auto found = by_rank_.find(local_rank);
  const int own = found == by_rank_.end() ? all_ : found->second;
  return (own & stream) != 0;
}

Streams parse_streams(const std::string& option, const std::string& text) {
  if (text.empty()) return Streams(0);
  if (const auto all = number(text, 4)) return Streams(static_cast<int>(*all));
  std::map<std::int64_t, int> by_rank;
  for (const std::string& part : split(text, ',')) {
    const auto pair = split(part, ':');
    if (pair.size() != 2) throw_invalid(option, text, kExpected);
    const auto rank = number(pair[0], kMaxProcesses), streams = number(pair[1], 4);
    if (!rank || !streams) throw_invalid(option, text, kExpected);
    if (!by_rank.emplace(*rank, static_cast<int>(*streams)).second)
      throw_invalid(option, text, "each local rank once");
  }
  return Streams(std::move(by_rank));
}

}  // namespace hasten
