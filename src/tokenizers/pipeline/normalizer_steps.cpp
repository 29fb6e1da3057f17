#include "tokenizers/pipeline/normalizer_steps.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "tokenizers/unicode.h"

namespace hasten::tokenizers {
namespace {

template <class Use>
void for_each_character(std::string_view text, Use use) {
  for (std::size_t at = 0; at < text.size();) {
    const DecodedCharacter character = decode_utf8(text.data() + at);
    use(character.value, text.substr(at, character.size));
    at += character.size;
  }
}

// True if a step that changes no character leaves the text as it is.
bool is_whole(const AlignedView& text) {
  const ByteRange range = range_of_source(text);
  return range.begin == 0 && range.end == text.bytes.size();
}

void rewrite(const AlignedView& text, const std::vector<FormCharacter>& characters,
             std::size_t removed, AlignedBuffer& out) {
  Rewriter rewriter(text, out, removed);
  for (const FormCharacter& c : characters) rewriter.add(c.value, c.change);
  rewriter.finish();
}

// Removes the characters that `keep` refuses.
template <class Keep>
void filter(const AlignedView& text, Keep keep, std::vector<FormCharacter>& characters,
            AlignedBuffer& out) {
  characters.clear();
  std::size_t removed_first = 0;
  int removed = 0;
  for_each_character(text.bytes, [&](char32_t c, std::string_view) {
    if (!keep(c)) {
      ++removed;
      return;
    }
    if (characters.empty())
      removed_first = static_cast<std::size_t>(removed);
    else
      characters.back().change = -removed;
    characters.push_back({c, 0});
    removed = 0;
  });
  if (!characters.empty()) characters.back().change = -removed;
  rewrite(text, characters, removed_first, out);
}

struct FormStep : NormalizerStep {
  explicit FormStep(Form to) : form(to) {}
  bool run(const AlignedView& text, AlignedBuffer& out, Scratch& scratch) const override {
    const TextProperties& properties = TextProperties::get();
    if (properties.is_normalized(form, text.bytes) && is_whole(text)) return false;
    properties.convert(form, text.bytes, scratch.characters);
    rewrite(text, scratch.characters, 0, out);
    return true;
  }
  Form form;
};

struct LowercaseStep : NormalizerStep {
  bool run(const AlignedView& text, AlignedBuffer& out, Scratch&) const override {
    Rewriter rewriter(text, out);
    std::u32string lowered;
    for_each_character(text.bytes, [&](char32_t c, std::string_view) {
      if (c < 0x80) return rewriter.add(c >= 'A' && c <= 'Z' ? c + 32 : c, 0);
      lowered.clear();
      Unicode::get().lower(c, lowered);
      for (std::size_t i = 0; i < lowered.size(); ++i) rewriter.add(lowered[i], i > 0 ? 1 : 0);
    });
    rewriter.finish();
    return true;
  }
};

struct StripStep : NormalizerStep {
  StripStep(bool from_left, bool from_right) : left(from_left), right(from_right) {}
  bool run(const AlignedView& text, AlignedBuffer& out, Scratch& scratch) const override {
    const auto is_white = [](char32_t c) { return Unicode::get().is(c, Unicode::white); };
    std::size_t begin = 0, end = text.bytes.size(), leading = 0;
    while (left && begin < end) {
      const DecodedCharacter character = decode_utf8(text.bytes.data() + begin);
      if (!is_white(character.value)) break;
      begin += character.size;
      ++leading;
    }
    while (right && end > begin) {
      const DecodedCharacter character = decode_utf8_before(text.bytes.data() + end);
      if (!is_white(character.value)) break;
      end -= character.size;
    }
    if (begin == 0 && end == text.bytes.size()) return false;
    scratch.characters.clear();
    for_each_character(text.bytes.substr(begin, end - begin), [&](char32_t c, std::string_view) {
      scratch.characters.push_back({c, 0});
    });
    rewrite(text, scratch.characters, leading, out);
    return true;
  }
  bool left, right;
};

struct StripAccentsStep : NormalizerStep {
  bool run(const AlignedView& text, AlignedBuffer& out, Scratch& scratch) const override {
    const TextProperties& properties = TextProperties::get();
    filter(
        text, [&](char32_t c) { return !properties.is(c, TextProperties::accent); },
        scratch.characters, out);
    return true;
  }
};

struct NmtStep : NormalizerStep {
  bool run(const AlignedView& text, AlignedBuffer& out, Scratch& scratch) const override {
    AlignedBuffer kept(out.tracks);
    filter(
        text, [](char32_t c) { return !is_removed(c); }, scratch.characters, kept);
    const AlignedView filtered = kept.view(text.source_begin, text.source_end);
    Rewriter rewriter(filtered, out);
    for_each_character(filtered.bytes, [&](char32_t c, std::string_view) {
      rewriter.add(is_blank(c) ? U' ' : c, 0);
    });
    rewriter.finish();
    return true;
  }
  static bool is_removed(char32_t c) {
    return (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
           c == 0x9F;
  }
  static bool is_blank(char32_t c) {
    return c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
           (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
           c == 0xFEFF || c == 0xFFFD;
  }
};

struct ByteLevelStep : NormalizerStep {
  bool run(const AlignedView& text, AlignedBuffer& out, Scratch&) const override {
    if (text.bytes.empty()) return false;
    write_byte_letters(text, out);
    return true;
  }
};

struct BertStep : NormalizerStep {
  explicit BertStep(const NormalizerOptions& options) : normalizer(Normalizer::get(options)) {}
  bool run(const AlignedView& text, AlignedBuffer& out, Scratch& scratch) const override {
    normalizer.run(text.bytes, out.tracks, scratch.normalized);
    const Normalized& result = scratch.normalized;
    out.bytes = result.text();
    if (!out.tracks) return true;
    std::vector<Alignment> places;  // the place of each character of the source
    for_each_character(text.bytes, [&](char32_t, std::string_view bytes) {
      places.push_back(text.alignments[bytes.data() - text.bytes.data()]);
    });
    for (std::size_t i = 0; i < result.bytes.size(); ++i)
      out.alignments.push_back(places[result.origins.data()[i]]);
    return true;
  }
  const Normalizer& normalizer;
};

struct CharsmapStep : NormalizerStep {
  explicit CharsmapStep(Charsmap charsmap) : map(std::move(charsmap)) {}
  bool run(const AlignedView& text, AlignedBuffer& out, Scratch& scratch) const override {
    scratch.characters.clear();
    bool is_changed = false;
    for (std::size_t at = 0; at < text.bytes.size();) {
      const std::size_t end = grapheme_end(text.bytes, at);
      const std::string_view grapheme = text.bytes.substr(at, end - at);
      at = end;
      if (grapheme.size() < kLongGrapheme && replace(grapheme, scratch.characters)) {
        is_changed = true;
        continue;
      }
      for_each_character(grapheme, [&](char32_t c, std::string_view bytes) {
        if (replace(bytes, scratch.characters))
          is_changed = true;
        else
          scratch.characters.push_back({c, 0});
      });
    }
    if (is_changed) rewrite(text, scratch.characters, 0, out);
    return is_changed;
  }
  // Appends the replacement of `old`, if the map has one.
  bool replace(std::string_view old, std::vector<FormCharacter>& characters) const {
    const auto replacement = map.find(old);
    if (!replacement) return false;
    const std::size_t before = characters.size();
    for_each_character(*replacement, [&](char32_t c, std::string_view) {
      characters.push_back({c, 0});
    });
    const int more =
        static_cast<int>(characters.size() - before) - static_cast<int>(code_point_count(old));
    for (int i = 0; i < more; ++i)
      characters[characters.size() - 1 - static_cast<std::size_t>(i)].change = 1;
    if (more < 0 && !characters.empty()) characters.back().change += more;
    return true;
  }
  static constexpr std::size_t kLongGrapheme = 6;
  Charsmap map;
};

struct PrependStep : NormalizerStep {
  explicit PrependStep(std::string prefix) : text(std::move(prefix)) {}
  bool run(const AlignedView& source, AlignedBuffer& out, Scratch&) const override {
    if (source.bytes.empty()) return false;
    prepend(source, text, out);
    return true;
  }
  bool inserts_first() const override { return text.empty(); }
  std::string text;
};

// Copies a text and replaces matches, which must be passed in order.
class Replacer {
 public:
  Replacer(const AlignedView& text, AlignedBuffer& out) : text_(text), out_(out) {}
  void replace(std::size_t begin, std::size_t end, std::string_view by) {
    out_.append(text_, copied_, begin);
    Alignment place{text_.source_begin, text_.source_begin};
    if (out_.tracks && end > 0) place = text_.alignments[end - 1];
    out_.append(by, place);
    copied_ = end;
  }
  void finish() { out_.append(text_, copied_, text_.bytes.size()); }

 private:
  const AlignedView& text_;
  AlignedBuffer& out_;
  std::size_t copied_ = 0;
};

struct ReplaceTextStep : NormalizerStep {
  ReplaceTextStep(std::string old_text, std::string new_text)
      : from(std::move(old_text)), to(std::move(new_text)) {}
  bool run(const AlignedView& text, AlignedBuffer& out, Scratch&) const override {
    std::size_t at = text.bytes.find(from);
    if (at == std::string_view::npos) return false;
    if (text.bytes.size() / from.size() * to.size() > kMaxTextBytes)
      require_text_size(count(text.bytes) * to.size());
    Replacer replacer(text, out);
    for (; at != std::string_view::npos; at = text.bytes.find(from, at + from.size()))
      replacer.replace(at, at + from.size(), to);
    replacer.finish();
    return true;
  }
  std::size_t count(std::string_view text) const {
    std::size_t found = 0;
    for (std::size_t at = text.find(from); at != std::string_view::npos;
         at = text.find(from, at + from.size()))
      ++found;
    return found;
  }
  std::string from, to;  // `from` is not empty
};

struct ReplacePatternStep : NormalizerStep {
  ReplacePatternStep(Pattern old_text, std::string new_text)
      : from(std::move(old_text)), to(std::move(new_text)) {}
  bool run(const AlignedView& text, AlignedBuffer& out, Scratch& scratch) const override {
    if (text.bytes.empty()) return false;
    from.find_all(text.bytes, scratch.matcher, scratch.matches);
    if (scratch.matches.empty()) return false;
    require_text_size(scratch.matches.size() * to.size());
    Replacer replacer(text, out);
    for (const Match& match : scratch.matches) replacer.replace(match.begin, match.end, to);
    replacer.finish();
    return true;
  }
  bool inserts_first() const override { return from.matches_empty(); }
  Pattern from;
  std::string to;
};

// Returns whether the byte stands for itself, as the visible characters of Latin-1 do.
bool is_visible(unsigned char byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
}

struct ByteLetters {
  std::array<char32_t, 256> letters{};
  std::array<std::int16_t, 0x180> bytes{};
  ByteLetters() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const auto index = static_cast<unsigned char>(byte);
      letters[index] = is_visible(index) ? index : next++;
      bytes[letters[index]] = static_cast<std::int16_t>(byte);
    }
  }
};
const ByteLetters& byte_letters() {
  static const ByteLetters table;
  return table;
}

}  // namespace

std::unique_ptr<NormalizerStep> make_form_step(Form form) {
  return std::make_unique<FormStep>(form);
}
std::unique_ptr<NormalizerStep> make_lowercase_step() { return std::make_unique<LowercaseStep>(); }
std::unique_ptr<NormalizerStep> make_strip_step(bool left, bool right) {
  return std::make_unique<StripStep>(left, right);
}
std::unique_ptr<NormalizerStep> make_strip_accents_step() {
  return std::make_unique<StripAccentsStep>();
}
std::unique_ptr<NormalizerStep> make_nmt_step() { return std::make_unique<NmtStep>(); }
std::unique_ptr<NormalizerStep> make_byte_level_step() { return std::make_unique<ByteLevelStep>(); }
std::unique_ptr<NormalizerStep> make_bert_step(const NormalizerOptions& options) {
  return std::make_unique<BertStep>(options);
}
std::unique_ptr<NormalizerStep> make_charsmap_step(Charsmap map) {
  return std::make_unique<CharsmapStep>(std::move(map));
}
std::unique_ptr<NormalizerStep> make_prepend_step(std::string text) {
  return std::make_unique<PrependStep>(std::move(text));
}
std::unique_ptr<NormalizerStep> make_replace_step(std::string from, std::string to) {
  return std::make_unique<ReplaceTextStep>(std::move(from), std::move(to));
}
std::unique_ptr<NormalizerStep> make_replace_step(Pattern from, std::string to) {
  return std::make_unique<ReplacePatternStep>(std::move(from), std::move(to));
}

AlignedView normalize(const NormalizerSteps& steps, AlignedView text,
                      std::array<AlignedBuffer, 2>& buffers, Scratch& scratch) {
  std::size_t next = 0;
  for (const auto& step : steps) {
    AlignedBuffer& out = buffers[next];
    out.clear();
    if (!step->run(text, out, scratch)) continue;
    require_text_size(out.bytes.size());
    text = out.view(text.source_begin, text.source_end);
    next = 1 - next;
  }
  return text;
}

void prepend(const AlignedView& source, std::string_view text, AlignedBuffer& out) {
  const DecodedCharacter first = decode_utf8(source.bytes.data());
  Rewriter rewriter(source, ByteRange{0, first.size}, out);
  bool is_first = true;
  for_each_character(text, [&](char32_t c, std::string_view) {
    rewriter.add(c, is_first ? 0 : 1);
    is_first = false;
  });
  rewriter.add(first.value, 1);
  rewriter.finish();
}

char32_t letter_of_byte(unsigned char byte) noexcept { return byte_letters().letters[byte]; }

int byte_of_letter(char32_t letter) noexcept {
  return letter < byte_letters().bytes.size() ? byte_letters().bytes[letter] : -1;
}

void write_byte_letters(const AlignedView& text, AlignedBuffer& out) {
  Rewriter rewriter(text, out);
  for_each_character(text.bytes, [&](char32_t, std::string_view bytes) {
    for (std::size_t i = 0; i < bytes.size(); ++i)
      rewriter.add(letter_of_byte(static_cast<unsigned char>(bytes[i])), i > 0 ? 1 : 0);
  });
  rewriter.finish();
}

}  // namespace hasten::tokenizers
