#include "tokenizers/text_properties.h"

#include <algorithm>
#include <span>
#include <unordered_set>

#include "base/utf8.h"
#include "tokenizers/unicode.h"
#include "tokenizers/unicode_tables.h"

namespace hasten::tokenizers {
namespace {

bool is_hangul(char32_t c) { return c >= kHangulFirst && c <= kHangulLast; }

std::uint64_t pair_key(char32_t first, char32_t second) {
  return std::uint64_t{first} << 32 | second;
}

// Composes letters of a Korean syllable by the formula of the Unicode standard.
std::optional<char32_t> compose_hangul(char32_t first, char32_t second) noexcept {
  if (first >= 0x1100 && first < 0x1113 && second >= 0x1161 && second < 0x1176)
    return kHangulFirst + ((first - 0x1100) * 21 + (second - 0x1161)) * 28;
  const bool open = is_hangul(first) && (first - kHangulFirst) % 28 == 0;
  if (open && second > 0x11A7 && second < 0x11C3) return first + (second - 0x11A7);
  return std::nullopt;
}

// Sorts the marks after each letter by combining class; marks of the same class keep their order.
void sort_by_class(std::vector<FormCharacter>& text) {
  const Unicode& unicode = Unicode::get();
  const auto is_mark = [&](const FormCharacter& c) {
    return unicode.combining_class(c.value) != 0;
  };
  for (auto from = text.begin(); from != text.end();) {
    from = std::find_if(from, text.end(), is_mark);
    const auto to = std::find_if_not(from, text.end(), is_mark);
    std::stable_sort(from, to, [&](const FormCharacter& a, const FormCharacter& b) {
      return unicode.combining_class(a.value) < unicode.combining_class(b.value);
    });
    from = to;
  }
}

}  // namespace

const TextProperties& TextProperties::get() {
  static const TextProperties properties;
  return properties;
}

TextProperties::TextProperties() : flags_(Unicode::kLimit) {
  const auto mark = [this](std::span<const CodePointRange> ranges, Flag flag) {
    for (const CodePointRange& range : ranges)
      for (char32_t c = range.first; c <= range.last; ++c) flags_[c] |= flag;
  };
  mark(numeric_ranges, numeric);
  mark(accent_ranges, accent);
  mark(grapheme_extend_ranges, grapheme_extend);
  mark(grapheme_control_ranges, grapheme_control);
  mark(grapheme_prepend_ranges, grapheme_prepend);
  mark(pictograph_ranges, pictograph);
  for (std::size_t at = 0; at < compatibility_singles.size();) {
    const char32_t first = compatibility_singles[at], count = compatibility_singles[at + 1];
    for (char32_t i = 0; i < count; ++i)
      compatibility_[first + i] = compatibility_singles[at + 2 + i];
    at += 2 + count;
  }
  for (std::size_t at = 0; at < compatibility_longer.size();) {
    const char32_t count = compatibility_longer[at + 1];
    compatibility_[compatibility_longer[at]].assign(&compatibility_longer[at + 2], count);
    at += 2 + count;
  }
  for (const DecompositionPair& pair : decomposition_pairs)
    if (!std::binary_search(composition_exclusions.begin(), composition_exclusions.end(),
                            pair.whole))
      compositions_[pair_key(pair.first, pair.second)] = pair.whole;
  mark_changes();
}

// Finds the characters that may differ in each form, alone or after other characters.
void TextProperties::mark_changes() {
  const Unicode& unicode = Unicode::get();
  const auto mark = [this](char32_t c, int forms) {
    flags_[c] |= static_cast<std::uint16_t>(forms);
  };
  constexpr int composed = changes_nfc | changes_nfkc, decomposed = changes_nfd | changes_nfkd;
  std::unordered_set<char32_t> recomposed;  // the characters that NFC decomposes and composes again
  for (const auto& [key, whole] : compositions_) recomposed.insert(whole);
  for (char32_t c = 0; c < Unicode::kLimit; ++c) {
    if (unicode.is(c, Unicode::combining)) mark(c, composed | decomposed);
    if (!unicode.is(c, Unicode::decomposes)) continue;
    mark(c, decomposed);
    if (!is_hangul(c) && !recomposed.contains(c)) mark(c, composed);
  }
  for (const auto& [key, whole] : compositions_) mark(key & 0xFFFFFFFF, composed);
  for (const auto& [c, target] : compatibility_) mark(c, changes_nfkc | changes_nfkd);
  for (char32_t c = 0x1161; c < 0x11C3; ++c) mark(c, composed);  // the letters of syllables
}

bool TextProperties::is_normalized(Form form, std::string_view text) const noexcept {
  const int flag = changes_nfc << static_cast<int>(form);
  for (std::size_t at = ascii_prefix(text); at < text.size();) {
    const DecodedCharacter character = decode_utf8(text.data() + at);
    if (is(character.value, flag)) return false;
    at += character.size;
  }
  return true;
}

void TextProperties::decompose(Form form, char32_t c, std::u32string& out) const {
  if (form == Form::nfkc || form == Form::nfkd) {
    const auto found = compatibility_.find(c);
    if (found != compatibility_.end()) {
      out += found->second;
      return;
    }
  }
  Unicode::get().decompose(c, out);
}

std::optional<char32_t> TextProperties::compose(char32_t first, char32_t second) const noexcept {
  if (const auto syllable = compose_hangul(first, second)) return syllable;
  const auto found = compositions_.find(pair_key(first, second));
  return found == compositions_.end() ? std::nullopt : std::optional(found->second);
}

void TextProperties::convert(Form form, std::string_view text,
                             std::vector<FormCharacter>& out) const {
  out.clear();
  std::u32string parts;
  for (std::size_t at = 0; at < text.size();) {
    const DecodedCharacter character = decode_utf8(text.data() + at);
    parts.clear();
    decompose(form, character.value, parts);
    for (std::size_t i = 0; i < parts.size(); ++i) out.push_back({parts[i], i > 0 ? 1 : 0});
    at += character.size;
  }
  sort_by_class(out);
  if (form == Form::nfd || form == Form::nfkd) return;

  // Composes in place. A mark or letter is composed with the letter before it if a composed
  // character exists and no character of the same or a higher class is between them.
  const Unicode& unicode = Unicode::get();
  std::size_t end = 0, letter = out.size();
  int last_class = -1;  // the class of the last mark kept after the letter, or -1
  for (std::size_t i = 0; i < out.size(); ++i) {
    const FormCharacter c = out[i];
    const int own_class = unicode.combining_class(c.value);
    if (letter < out.size() && last_class < own_class) {
      if (const auto whole = compose(out[letter].value, c.value)) {
        out[letter] = {*whole, out[letter].change + c.change - 1};
        continue;
      }
    }
    if (own_class == 0) {
      letter = end;
      last_class = -1;
    } else if (letter < out.size()) {
      last_class = own_class;
    }
    out[end++] = c;
  }
  out.resize(end);
}

}  // namespace hasten::tokenizers
