#include "tokenizers/normalizer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>

#include "tokenizers/unicode_tables.h"

namespace hasten::tokenizers {
namespace {

// An upper bound for the number of bytes that run_by_table writes for one character: the three
// letters of a syllable take 9, a Mapping 15.
constexpr std::size_t kMaxResultBytes = 16;

// Writes the two or three letters of a Korean syllable, each of three bytes, and returns the end.
char* write_hangul(char32_t c, char* out) {
  const HangulLetters letters = hangul_letters(c);
  for (int i = 0; i < letters.count; ++i) out += encode_utf8(letters.values[i], out);
  return out;
}

// One character of a decomposition. The first stands for the source character; the others are
// `added`.
struct Part {
  char32_t value;
  std::uint8_t combining_class;
  bool added;
};

// Sorts the marks after each letter by combining class. Marks of the same class keep their order.
void sort_marks(std::vector<Part>& parts) {
  const auto is_mark = [](const Part& part) { return part.combining_class != 0; };
  for (auto from = parts.begin(); from != parts.end();) {
    from = std::find_if(from, parts.end(), is_mark);
    const auto to = std::find_if_not(from, parts.end(), is_mark);
    std::stable_sort(from, to, [](const Part& a, const Part& b) {
      return a.combining_class < b.combining_class;
    });
    from = to;
  }
}

}  // namespace

Normalizer::Normalizer(const NormalizerOptions& options)
    : options_(options), unicode_(Unicode::get()), actions_(compute_actions()) {
  for (char32_t c = 0; c < 128; ++c) {
    const std::uint16_t action = actions_[c];
    ascii_kept_[c] = action != drop;
    ascii_byte_[c] = action == space ? ' ' : static_cast<char>(c);
    if (action >= first_mapping) ascii_byte_[c] = mappings_[action - first_mapping].bytes[0];
  }
}

const Normalizer& Normalizer::get(const NormalizerOptions& options) {
  static std::array<std::once_flag, 16> is_built;
  static std::array<std::unique_ptr<const Normalizer>, 16> all;
  const std::size_t index = (options.clean_text ? 1 : 0) | (options.ideographs ? 2 : 0) |
                            (options.strip_accents ? 4 : 0) | (options.lowercase ? 8 : 0);
  std::call_once(is_built[index], [&] { all[index].reset(new Normalizer(options)); });
  return *all[index];
}

// The large classes are set at once; for other characters compute_action tries out the result.
CodePointTable<std::uint16_t> Normalizer::compute_actions() {
  Actions actions(Unicode::kLimit, keep);
  const auto compute = [&](char32_t c) { actions[c] = compute_action(c); };
  const auto each = [](std::span<const CodePointRange> ranges, auto&& use) {
    for (const auto& range : ranges)
      for (char32_t c = range.first; c <= range.last; ++c) use(c);
  };
  if (options_.clean_text) {
    each(dropped_ranges, [&](char32_t c) { actions[c] = drop; });
    each(white_ranges, compute);
  }
  if (options_.ideographs) {
    each(ideograph_ranges, [&](char32_t c) {
      if (unicode_.is(c, Unicode::decomposes))
        compute(c);
      else
        actions[c] = add_spaces;
    });
  }
  if (options_.lowercase) {
    compute(0x130);
    for (const auto& range : case_ranges)
      for (char32_t c = range.first; c <= range.last; c += range.step) compute(c);
  }
  if (options_.strip_accents) {
    each(mark_ranges, compute);
    for (const auto& range : combining_ranges)
      for (char32_t c = range.first; c <= range.last; ++c) compute(c);
    for (const auto& pair : decomposition_pairs) compute(pair.whole);
    for (std::size_t at = 0; at < decomposition_singles.size();
         at += 2 + decomposition_singles[at + 1])
      for (char32_t i = 0; i < decomposition_singles[at + 1]; ++i)
        compute(decomposition_singles[at] + i);
    for (char32_t c = kHangulFirst; c <= kHangulLast; ++c) actions[c] = hangul;
  }
  return CodePointTable<std::uint16_t>([&](char32_t first, std::span<std::uint16_t> page) {
    std::copy_n(actions.begin() + first, page.size(), page.begin());
  });
}

std::uint16_t Normalizer::compute_action(char32_t c) {
  std::vector<Character> result{{c, 0}};
  apply(result);
  bool ordered = true;  // no part is a mark that could change places with a neighbour
  for (const Character& part : result) ordered &= unicode_.combining_class(part.value) == 0;
  if (options_.strip_accents && !ordered) return needs_context;
  if (result.empty()) return drop;
  if (result.size() == 1 && result[0].value == ' ') return space;
  if (result.size() == 1 && result[0].value == c) return keep;
  return add_mapping(result);
}

Normalizer::Action Normalizer::add_mapping(const std::vector<Character>& result) {
  Mapping mapping;
  for (const Character& part : result) {
    if (mapping.size + 4u > sizeof mapping.bytes) return needs_context;
    mapping.size +=
        static_cast<std::uint8_t>(encode_utf8(part.value, mapping.bytes + mapping.size));
  }
  mappings_.push_back(mapping);
  return static_cast<Action>(first_mapping + mappings_.size() - 1);
}

void Normalizer::run(std::string_view text, bool origins, Normalized& out) const {
  const bool done = origins ? run_by_table<true>(text, out) : run_by_table<false>(text, out);
  if (!done) run_on_characters(text, origins, out);
}

// Writes the result for the character at `at`, which is not ASCII, and returns the end of the
// output.
char* Normalizer::write_action(std::uint16_t action, const DecodedCharacter& character,
                               const char* at, char* to) const noexcept {
  switch (action) {
    case keep:
      std::memcpy(to, at, character.size);
      return to + character.size;
    case drop:
      return to;
    case space:
      *to = ' ';
      return to + 1;
    case add_spaces:
      *to++ = ' ';
      std::memcpy(to, at, character.size);
      to += character.size;
      *to = ' ';
      return to + 1;
    case hangul:
      return write_hangul(character.value, to);
    default: {
      const Mapping& mapping = mappings_[action - first_mapping];
      std::memcpy(to, mapping.bytes, sizeof mapping.bytes);
      return to + mapping.size;
    }
  }
}

// Normalizes character by character. Returns false if a character's result depends on its
// neighbours.
template <bool with_origins>
bool Normalizer::run_by_table(std::string_view text, Normalized& out) const {
  const char* at = text.data();
  const char* const end = at + text.size();
  // There is always room for one byte of output per unread byte of input, plus one longest result.
  out.bytes.reserve(text.size() + 2 * kMaxResultBytes);
  if constexpr (with_origins) out.origins.reserve(out.bytes.capacity());
  char* to = out.bytes.data();
  for (std::uint32_t index = 0; at < end; ++index) {
    const auto byte = static_cast<unsigned char>(*at);
    if (byte < 0x80) {
      *to = ascii_byte_[byte];
      if constexpr (with_origins) out.origins.data()[to - out.bytes.data()] = index;
      to += ascii_kept_[byte];
      ++at;
      continue;
    }
    const auto used = static_cast<std::size_t>(to - out.bytes.data());
    out.bytes.reserve(used + static_cast<std::size_t>(end - at) + 2 * kMaxResultBytes, used);
    if constexpr (with_origins) out.origins.reserve(out.bytes.capacity(), used);
    to = out.bytes.data() + used;
    const DecodedCharacter character = decode_utf8(at);
    const std::uint16_t action = actions_[character.value];
    if (action == needs_context) return false;
    to = write_action(action, character, at, to);
    if constexpr (with_origins) {
      for (auto* origin = out.origins.data() + used;
           origin < out.origins.data() + (to - out.bytes.data()); ++origin)
        *origin = index;
    }
    at += character.size;
  }
  out.bytes.set_size(static_cast<std::size_t>(to - out.bytes.data()));
  if constexpr (with_origins) out.origins.set_size(out.bytes.size());
  return true;
}

// The functions below run the steps one after the other on whole characters. They handle the few
// texts with marks that change places, and find out the result for a single character.

void Normalizer::clean(std::vector<Character>& text) const {
  std::erase_if(text,
                [this](const Character& c) { return unicode_.is(c.value, Unicode::dropped); });
  for (Character& c : text)
    if (unicode_.is(c.value, Unicode::white)) c.value = ' ';
}

void Normalizer::add_spaces_around_ideographs(std::vector<Character>& text) const {
  std::vector<Character> out;
  out.reserve(text.size());
  for (const Character& c : text) {
    const bool apart = unicode_.is(c.value, Unicode::ideograph);
    if (apart) out.push_back({' ', c.origin});
    out.push_back(c);
    if (apart) out.push_back({' ', c.origin});
  }
  text = std::move(out);
}

// If marks change places, origins are the same as in Hugging Face tokenizers: in sorted order, a
// part that stands for a source character takes the next source character, and an added part takes
// the source character of the part before it.
void Normalizer::strip_accents(std::vector<Character>& text) const {
  std::vector<Part> parts;
  parts.reserve(text.size());
  std::u32string decomposed;
  for (const Character& c : text) {
    decomposed.clear();
    unicode_.decompose(c.value, decomposed);
    for (std::size_t i = 0; i < decomposed.size(); ++i)
      parts.push_back({decomposed[i], unicode_.combining_class(decomposed[i]), i > 0});
  }
  sort_marks(parts);
  std::vector<Character> out;
  out.reserve(parts.size());
  std::size_t taken = 0;
  for (const Part& part : parts) {
    if (!part.added) ++taken;
    if (!unicode_.is(part.value, Unicode::mark))
      out.push_back({part.value, text[std::max<std::size_t>(taken, 1) - 1].origin});
  }
  text = std::move(out);
}

void Normalizer::to_lower(std::vector<Character>& text) const {
  std::vector<Character> out;
  out.reserve(text.size());
  std::u32string lowered;
  for (const Character& c : text) {
    lowered.clear();
    unicode_.lower(c.value, lowered);
    for (const char32_t value : lowered) out.push_back({value, c.origin});
  }
  text = std::move(out);
}

void Normalizer::apply(std::vector<Character>& text) const {
  if (options_.clean_text) clean(text);
  if (options_.ideographs) add_spaces_around_ideographs(text);
  if (options_.strip_accents) strip_accents(text);
  if (options_.lowercase) to_lower(text);
}

void Normalizer::run_on_characters(std::string_view text, bool origins, Normalized& out) const {
  std::vector<Character> characters;
  characters.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const DecodedCharacter decoded = decode_utf8(text.data() + at);
    characters.push_back({decoded.value, static_cast<std::uint32_t>(characters.size())});
    at += decoded.size;
  }
  apply(characters);
  out.bytes.reserve(4 * characters.size() + 4);
  if (origins) out.origins.reserve(out.bytes.capacity());
  std::size_t size = 0;
  for (const Character& c : characters) {
    const std::uint32_t length = encode_utf8(c.value, out.bytes.data() + size);
    if (origins) std::fill_n(out.origins.data() + size, length, c.origin);
    size += length;
  }
  out.bytes.set_size(size);
  out.origins.set_size(origins ? size : 0);
}

}  // namespace hasten::tokenizers
