#include "process/unlike.h"

#include <algorithm>
#include <map>
#include <utility>

#include "hasten/base/text.h"

namespace hasten {
namespace {

constexpr std::size_t kNamed = 16;

}  // namespace

Unlike unlike_most(const std::vector<std::optional<std::string>>& said) {
  std::map<std::string, Ranks> by_text;
  for (std::size_t rank = 0; rank < said.size(); ++rank) {
    if (said[rank]) by_text[*said[rank]].push_back(static_cast<std::int64_t>(rank));
  }
  if (by_text.empty()) return {};
  const auto most =
      std::max_element(by_text.begin(), by_text.end(), [](const auto& one, const auto& other) {
        return std::pair(one.second.size(), -one.second.front()) <
               std::pair(other.second.size(), -other.second.front());
      });
  Unlike unlike{.most = most->second, .right = most->first};
  by_text.erase(most);
  for (const auto& [text, ranks] : by_text)
    unlike.others.insert(unlike.others.end(), ranks.begin(), ranks.end());
  std::sort(unlike.others.begin(), unlike.others.end());
  if (!unlike.others.empty())
    unlike.first_other = *said[static_cast<std::size_t>(unlike.others.front())];
  return unlike;
}

std::string ranks_text(const Ranks& ranks) {
  std::vector<std::string> names;
  for (const std::int64_t rank : ranks) {
    if (names.size() == kNamed) break;
    names.push_back(str(rank));
  }
  const std::size_t more = ranks.size() - names.size();
  return str(ranks.size() == 1 ? "rank " : "ranks ", join(names, ", "),
             more > 0 ? str(" and ", more, " more") : std::string());
}

}  // namespace hasten
