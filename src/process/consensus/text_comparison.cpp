#include "process/consensus/text_comparison.h"

#include <ATen/ATen.h>

#include <cstring>
#include <vector>

#include "hasten/base/text.h"

namespace hasten {

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

std::optional<Difference> find_difference(const std::string& text, const Group& group) {
  const at::Tensor own = at::scalar_tensor(fingerprint(text.data(), text.size()), at::kLong);
  const at::Tensor all = group.gather(own);
  if ((all == all[0]).all().item<bool>()) return std::nullopt;
  const std::vector<std::string> texts = group.gather_object(text);
  const auto first = split(texts[0], '\n');
  const auto line = [](const std::vector<std::string>& lines, std::size_t at) {
    return at < lines.size() && !lines[at].empty() ? lines[at] : std::string("no further line");
  };
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    const auto other = split(texts[rank], '\n');
    std::size_t at = 0;
    while (at < first.size() && at < other.size() && first[at] == other[at]) ++at;
    return Difference{static_cast<std::int64_t>(rank), line(other, at), line(first, at)};
  }
  return std::nullopt;
}

}  // namespace hasten
