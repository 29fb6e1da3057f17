#include "process/consensus/disagreement.h"

#include <algorithm>
#include <map>
#include <utility>

#include "hasten/base/text.h"

namespace hasten {
namespace {

constexpr std::size_t kMaxNamedRanks = 16;

}  // namespace

Disagreement find_disagreement(const std::vector<std::optional<std::string>>& texts) {
  std::map<std::string, Ranks> by_text;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank]) by_text[*texts[rank]].push_back(static_cast<std::int64_t>(rank));
  }
  if (by_text.empty()) return {};
  const auto most =
      std::max_element(by_text.begin(), by_text.end(), [](const auto& one, const auto& other) {
        return std::pair(one.second.size(), -one.second.front()) <
               std::pair(other.second.size(), -other.second.front());
      });
  Disagreement disagreement{.majority_ranks = most->second, .majority_text = most->first};
  by_text.erase(most);
  for (const auto& [text, ranks] : by_text)
    disagreement.different_ranks.insert(disagreement.different_ranks.end(), ranks.begin(),
                                        ranks.end());
  std::sort(disagreement.different_ranks.begin(), disagreement.different_ranks.end());
  if (!disagreement.different_ranks.empty())
    disagreement.first_different_text =
        *texts[static_cast<std::size_t>(disagreement.different_ranks.front())];
  return disagreement;
}

std::string ranks_text(const Ranks& ranks) {
  std::vector<std::string> names;
  for (const std::int64_t rank : ranks) {
    if (names.size() == kMaxNamedRanks) break;
    names.push_back(str(rank));
  }
  const std::size_t more = ranks.size() - names.size();
  return str(ranks.size() == 1 ? "rank " : "ranks ", join(names, ", "),
             more > 0 ? str(" and ", more, " more") : std::string());
}

}  // namespace hasten
