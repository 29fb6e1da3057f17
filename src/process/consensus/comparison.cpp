#include "process/consensus/comparison.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

constexpr std::size_t kMaxNamedRanks = 16;

bool is_same_on_all_ranks(const std::string& text, const Group& group) {
  const at::Tensor own = at::scalar_tensor(fingerprint(text.data(), text.size()), at::kLong);
  const at::Tensor all = group.gather(own);
  return (all == all[0]).all().item<bool>();
}

std::string line_at(const std::vector<std::string>& lines, std::size_t at) {
  return at < lines.size() && !lines[at].empty() ? lines[at] : "no further line";
}

}  // namespace

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

// Four independent lanes make it as fast as reading the memory.
std::int64_t fingerprint(const void* data, std::size_t size) {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15u;
  std::uint64_t lanes[4] = {kOdd, kOdd * 3, kOdd * 5, kOdd * 7};
  const auto* bytes = static_cast<const unsigned char*>(data);
  std::size_t at = 0;
  for (; at + 32 <= size; at += 32) {
    std::uint64_t words[4];
    std::memcpy(words, bytes + at, 32);
    for (int lane = 0; lane < 4; ++lane) {
      lanes[lane] = (lanes[lane] ^ words[lane]) * kOdd;
      lanes[lane] ^= lanes[lane] >> 29;
    }
  }
  std::uint64_t all = size;
  for (; at < size; ++at) all = (all ^ bytes[at]) * 0x100000001b3u;
  for (const std::uint64_t lane : lanes) all = (all ^ lane ^ (all >> 31)) * kOdd;
  return static_cast<std::int64_t>(all);
}

void check_same_text(const std::string& text, const Group& group, const TextCheck& check) {
  if (is_same_on_all_ranks(text, group)) return;
  const std::vector<std::string> texts = group.gather_object(text);
  const auto differs =
      std::find_if(texts.begin(), texts.end(), [&](const auto& each) { return each != texts[0]; });
  if (differs == texts.end()) return;
  const auto first = split(texts[0], '\n'), other = split(*differs, '\n');
  std::size_t at = 0;
  while (at < first.size() && at < other.size() && first[at] == other[at]) ++at;
  throw UsageError(check.code,
                   {.what = str(check.what, " differs on rank ", differs - texts.begin()),
                    .got = line_at(other, at),
                    .expected = line_at(first, at) + ", as on rank 0",
                    .hint = check.hint});
}

Disagreement find_disagreement(const std::vector<std::optional<std::string>>& texts) {
  std::map<std::string, Ranks> by_text;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank]) by_text[*texts[rank]].push_back(static_cast<std::int64_t>(rank));
  }
  if (by_text.empty()) return {};
  const auto majority =
      std::max_element(by_text.begin(), by_text.end(), [](const auto& one, const auto& other) {
        return std::pair(one.second.size(), -one.second.front()) <
               std::pair(other.second.size(), -other.second.front());
      });
  Disagreement disagreement{.majority_ranks = majority->second, .majority_text = majority->first};
  by_text.erase(majority);
  for (const auto& [text, ranks] : by_text)
    disagreement.different_ranks.insert(disagreement.different_ranks.end(), ranks.begin(),
                                        ranks.end());
  std::sort(disagreement.different_ranks.begin(), disagreement.different_ranks.end());
  if (!disagreement.different_ranks.empty())
    disagreement.first_different_text =
        *texts[static_cast<std::size_t>(disagreement.different_ranks.front())];
  return disagreement;
}

}  // namespace hasten
