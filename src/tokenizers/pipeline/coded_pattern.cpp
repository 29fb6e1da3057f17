#include "tokenizers/pipeline/coded_pattern.h"

#include <algorithm>
#include <array>
#include <utility>

namespace hasten::tokenizers {

std::string escaped_byte(unsigned char byte) {
  constexpr const char* digits = "0123456789ABCDEF";
  return {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
}

void CodedPattern::add_set(CodeSet set) {
  const auto found = std::find(sets_.begin(), sets_.end(), set);
  pieces_.push_back({"", static_cast<int>(found - sets_.begin())});
  if (found == sets_.end()) sets_.push_back(std::move(set));
}

void CodedPattern::group_from(std::size_t begin) {
  pieces_.insert(pieces_.begin() + static_cast<std::ptrdiff_t>(begin), Piece{"(?:", -1});
  add_text(")");
}

std::optional<Translation> CodedPattern::translation() const {
  std::map<char32_t, std::vector<std::size_t>> toggles;  // the sets that begin or end there
  toggles[0x80];
  for (std::size_t i = 0; i < sets_.size(); ++i) {
    for (const CodeSet::Range& range : sets_[i].ranges()) {
      if (range.second < 0x80) continue;
      toggles[std::max<char32_t>(range.first, 0x80)].push_back(i);
      if (range.second < CodeSet::kLast) toggles[range.second + 1].push_back(i);
    }
  }
  Translation out;
  std::vector<bool> inside(sets_.size());
  Codes codes;
  for (const auto& [first, changed] : toggles) {
    for (const std::size_t i : changed) inside[i] = !inside[i];
    const auto [found, is_new] =
        codes.emplace(inside, static_cast<std::uint8_t>(0x80 + codes.size()));
    if (is_new && codes.size() > 128) return std::nullopt;
    if (out.rows.empty() || out.rows.back().code != found->second)
      out.rows.push_back({first, found->second});
  }
  for (const Piece& piece : pieces_)
    out.regex += piece.set < 0 ? piece.text : class_of(static_cast<std::size_t>(piece.set), codes);
  return out;
}

std::string CodedPattern::class_of(std::size_t set, const Codes& codes) const {
  std::array<bool, 256> has{};
  for (char32_t c = 0; c < 0x80; ++c) has[c] = sets_[set].contains(c);
  for (const auto& [inside, code] : codes) has[code] = inside[set];
  std::string out;
  for (std::size_t first = 0; first < has.size(); ++first) {
    if (!has[first]) continue;
    std::size_t last = first;
    while (last + 1 < has.size() && has[last + 1]) ++last;
    out += escaped_byte(static_cast<unsigned char>(first));
    if (last > first) out += "-" + escaped_byte(static_cast<unsigned char>(last));
    first = last;
  }
  return out.empty() ? "(?!)" : "[" + out + "]";
}

}  // namespace hasten::tokenizers
