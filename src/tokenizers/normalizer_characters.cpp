// Runs the normalizer step by step on whole characters: for the few texts with marks that change
// places, and to find out the result for a single character.
#include <algorithm>

#include "normalizer.h"

namespace hasten::tokenizers {
namespace {

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

void Normalizer::clean(std::vector<Character>& text) const {
  std::erase_if(text,
                [this](const Character& c) { return unicode_.is(c.value, Unicode::dropped); });
  for (Character& c : text)
    if (unicode_.is(c.value, Unicode::white)) c.value = ' ';
}

void Normalizer::set_ideographs_apart(std::vector<Character>& text) const {
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
// that of the part before it.
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
  if (options_.ideographs) set_ideographs_apart(text);
  if (options_.strip_accents) strip_accents(text);
  if (options_.lowercase) to_lower(text);
}

void Normalizer::run_on_characters(std::string_view text, bool origins, Normalized& out) const {
  std::vector<Character> characters;
  characters.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Decoded decoded = decode_utf8(text.data() + at);
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
