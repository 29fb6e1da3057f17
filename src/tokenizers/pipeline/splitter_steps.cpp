#include "tokenizers/pipeline/splitter_steps.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "tokenizers/pipeline/normalizer_steps.h"
#include "tokenizers/unicode.h"
#include "tokenizers/words.h"

namespace hasten::tokenizers {
namespace {

// A segment of a part: a delimiter, or the text between two delimiters.
struct Segment {
  std::uint32_t begin;
  std::uint32_t end;
  bool is_delimiter;
};

// Replaces each part that is not a token by the parts that split(part, add) passes to add(begin,
// end), in bytes of the part. Empty parts are dropped.
template <class Split>
void split_parts(SplitText& text, Scratch& scratch, Split split) {
  std::vector<TextPart>& out = scratch.parts;
  out.clear();
  for (const TextPart& part : text.parts) {
    if (part.token >= 0) {
      out.push_back(part);
      continue;
    }
    split(part, [&](std::size_t begin, std::size_t end) {
      if (begin < end) out.push_back(text.slice(part.begin + begin, part.begin + end));
    });
  }
  std::swap(text.parts, out);
}

template <class Add>
void add_segments(const std::vector<Segment>& segments, SplitBehavior behavior, Add add) {
  const std::size_t count = segments.size();
  const auto is_delimiter = [&](std::size_t i) { return segments[i].is_delimiter; };
  for (std::size_t i = 0; i < count;) {
    std::size_t last = i;
    switch (behavior) {
      case SplitBehavior::removed:
        if (is_delimiter(i)) {
          ++i;
          continue;
        }
        break;
      case SplitBehavior::isolated:
        break;
      case SplitBehavior::contiguous:
        while (last + 1 < count && is_delimiter(last + 1) == is_delimiter(i)) ++last;
        break;
      case SplitBehavior::merged_with_previous:
        if (!is_delimiter(i) && i + 1 < count && is_delimiter(i + 1)) ++last;
        break;
      case SplitBehavior::merged_with_next:
        if (is_delimiter(i) && i + 1 < count && !is_delimiter(i + 1)) ++last;
        break;
    }
    add(segments[i].begin, segments[last].end);
    i = last + 1;
  }
}

// Splits the parts at the delimiters, which `find(text)` puts into scratch.matches.
template <class Find>
void split_at_matches(SplitText& text, Scratch& scratch, SplitBehavior behavior, bool inverts,
                      Find find) {
  std::vector<Segment> segments;
  split_parts(text, scratch, [&](const TextPart& part, auto add) {
    const std::string_view bytes = text.view(part).bytes;
    find(bytes);
    segments.clear();
    std::uint32_t at = 0;
    for (const Match& match : scratch.matches) {
      if (at != match.begin) segments.push_back({at, match.begin, inverts});
      segments.push_back({match.begin, match.end, !inverts});
      at = match.end;
    }
    if (at != bytes.size())
      segments.push_back({at, static_cast<std::uint32_t>(bytes.size()), inverts});
    add_segments(segments, behavior, add);
  });
}

struct PatternSplitter : SplitterStep {
  PatternSplitter(Pattern delimiter, SplitBehavior what, bool is_inverted)
      : pattern(std::move(delimiter)), behavior(what), inverts(is_inverted) {}
  void run(SplitText& text, Scratch& scratch) const override {
    split_at_matches(text, scratch, behavior, inverts, [&](std::string_view bytes) {
      pattern.find_all(bytes, scratch.matcher, scratch.matches);
    });
  }
  Pattern pattern;
  SplitBehavior behavior;
  bool inverts;
};

struct TextSplitter : SplitterStep {
  TextSplitter(std::string text, SplitBehavior what, bool is_inverted)
      : delimiter(std::move(text)), behavior(what), inverts(is_inverted) {}
  void run(SplitText& text, Scratch& scratch) const override {
    split_at_matches(text, scratch, behavior, inverts, [&](std::string_view bytes) {
      scratch.matches.clear();
      for (std::size_t at = bytes.find(delimiter); at != std::string_view::npos;
           at = bytes.find(delimiter, at + delimiter.size()))
        scratch.matches.push_back(
            {static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at + delimiter.size())});
    });
  }
  std::string delimiter;
  SplitBehavior behavior;
  bool inverts;
};

// Splits at single characters.
template <class Is>
struct CharacterSplitter : SplitterStep {
  CharacterSplitter(Is is, SplitBehavior what) : is_delimiter(is), behavior(what) {}
  void run(SplitText& text, Scratch& scratch) const override {
    split_at_matches(text, scratch, behavior, false, [&](std::string_view bytes) {
      scratch.matches.clear();
      for (std::size_t at = 0; at < bytes.size();) {
        const DecodedCharacter character = decode_utf8(bytes.data() + at);
        const auto end = static_cast<std::uint32_t>(at + character.size);
        if (is_delimiter(character.value))
          scratch.matches.push_back({static_cast<std::uint32_t>(at), end});
        at = end;
      }
    });
  }
  Is is_delimiter;
  SplitBehavior behavior;
};

template <class Is>
std::unique_ptr<SplitterStep> character_splitter(Is is, SplitBehavior behavior) {
  return std::make_unique<CharacterSplitter<Is>>(is, behavior);
}

// Words are runs of word characters, and runs of characters that are neither word characters nor
// white space.
struct WhitespaceSplitter : SplitterStep {
  void run(SplitText& text, Scratch& scratch) const override {
    split_parts(text, scratch, [&](const TextPart& part, auto add) {
      const std::string_view bytes = text.view(part).bytes;
      const Unicode& unicode = Unicode::get();
      std::size_t start = 0;
      int kind = 0;
      for (std::size_t at = 0; at < bytes.size();) {
        const DecodedCharacter character = decode_utf8(bytes.data() + at);
        const int next = unicode.is(character.value, Unicode::word)    ? 1
                         : unicode.is(character.value, Unicode::white) ? 0
                                                                       : 2;
        if (next != kind) {
          if (kind != 0) add(start, at);
          start = at;
          kind = next;
        }
        at += character.size;
      }
      if (kind != 0) add(start, bytes.size());
    });
  }
};

struct BertSplitter : SplitterStep {
  void run(SplitText& text, Scratch& scratch) const override {
    split_parts(text, scratch, [&](const TextPart& part, auto add) {
      for_each_word(text.view(part).bytes, [&](std::string_view word, std::size_t at) {
        add(at, at + word.size());
        return true;
      });
    });
  }
};

struct LengthSplitter : SplitterStep {
  explicit LengthSplitter(std::size_t count) : characters(count) {}
  void run(SplitText& text, Scratch& scratch) const override {
    split_parts(text, scratch, [&](const TextPart& part, auto add) {
      const std::string_view bytes = text.view(part).bytes;
      std::size_t start = 0, count = 0;
      for (std::size_t at = 0; at < bytes.size();) {
        at += decode_utf8(bytes.data() + at).size;
        if (++count < characters && at < bytes.size()) continue;
        add(start, at);
        start = at;
        count = 0;
      }
    });
  }
  std::size_t characters;
};

// Rewrites the text of every part that is not a token: rewrite(view, out) appends the new text.
template <class Rewrite>
void rewrite_parts(SplitText& text, Scratch& scratch, Rewrite rewrite) {
  AlignedBuffer out(text.text.tracks);
  out.bytes.reserve(text.text.bytes.size() * 2);
  if (out.tracks) out.alignments.reserve(out.bytes.capacity());
  scratch.parts.clear();
  for (const TextPart& part : text.parts) {
    TextPart moved = part;
    moved.begin = static_cast<std::uint32_t>(out.bytes.size());
    const AlignedView view = text.view(part);
    if (part.token >= 0)
      out.append(view, 0, view.bytes.size());
    else
      rewrite(view, out);
    require_text_size(out.bytes.size());
    moved.end = static_cast<std::uint32_t>(out.bytes.size());
    if (moved.begin == moved.end) continue;
    scratch.parts.push_back(moved);
  }
  std::swap(text.text, out);
  std::swap(text.parts, scratch.parts);
}

struct MetaspaceSplitter : SplitterStep {
  MetaspaceSplitter(char32_t c, PrependScheme when, bool also_splits)
      : scheme(when), splits(also_splits) {
    append_utf8(c, replacement);
  }
  bool needs_places() const override { return scheme == PrependScheme::first; }

  void run(SplitText& text, Scratch& scratch) const override {
    AlignedBuffer replaced(text.text.tracks);
    rewrite_parts(text, scratch, [&](const AlignedView& view, AlignedBuffer& out) {
      replaced.clear();
      replace_blanks(view, replaced);
      const AlignedView result = replaced.view(view.source_begin, view.source_end);
      if (is_prepended(result))
        prepend(result, replacement, out);
      else
        out.append(result, 0, result.bytes.size());
    });
    if (splits) split(text, scratch);
  }
  void replace_blanks(const AlignedView& view, AlignedBuffer& out) const {
    std::size_t copied = 0;
    for (std::size_t at = view.bytes.find(' '); at != std::string_view::npos;
         at = view.bytes.find(' ', copied)) {
      out.append(view, copied, at);
      out.append(replacement, view.tracks() ? view.alignments[at] : Alignment{});
      copied = at + 1;
    }
    out.append(view, copied, view.bytes.size());
  }
  bool is_prepended(const AlignedView& text) const {
    if (text.bytes.starts_with(replacement)) return false;
    return scheme == PrependScheme::always ||
           (scheme == PrependScheme::first && text.source_begin == 0);
  }
  // Each replacement begins a word.
  void split(SplitText& text, Scratch& scratch) const {
    split_parts(text, scratch, [&](const TextPart& part, auto add) {
      const std::string_view bytes = text.view(part).bytes;
      std::size_t start = 0;
      while (start < bytes.size()) {
        const std::size_t end = std::min(bytes.find(replacement, start + 1), bytes.size());
        add(start, end);
        start = end;
      }
    });
  }
  std::string replacement;
  PrependScheme scheme;
  bool splits;
};

struct BlankPrepender : SplitterStep {
  void run(SplitText& text, Scratch& scratch) const override {
    rewrite_parts(text, scratch, [](const AlignedView& view, AlignedBuffer& out) {
      if (view.bytes.starts_with(' '))
        out.append(view, 0, view.bytes.size());
      else
        prepend(view, " ", out);
    });
  }
};

struct ByteLetterStep : SplitterStep {
  void run(SplitText& text, Scratch& scratch) const override {
    rewrite_parts(text, scratch, write_byte_letters);
  }
};

}  // namespace

std::unique_ptr<SplitterStep> make_pattern_splitter(Pattern pattern, SplitBehavior behavior,
                                                    bool inverts) {
  return std::make_unique<PatternSplitter>(std::move(pattern), behavior, inverts);
}
std::unique_ptr<SplitterStep> make_text_splitter(std::string delimiter, SplitBehavior behavior,
                                                 bool inverts) {
  return std::make_unique<TextSplitter>(std::move(delimiter), behavior, inverts);
}
std::unique_ptr<SplitterStep> make_character_splitter(char32_t delimiter) {
  return character_splitter([delimiter](char32_t c) { return c == delimiter; },
                            SplitBehavior::removed);
}
std::unique_ptr<SplitterStep> make_whitespace_splitter() {
  return std::make_unique<WhitespaceSplitter>();
}
std::unique_ptr<SplitterStep> make_white_space_only_splitter() {
  return character_splitter([](char32_t c) { return Unicode::get().is(c, Unicode::white); },
                            SplitBehavior::removed);
}
std::unique_ptr<SplitterStep> make_bert_splitter() { return std::make_unique<BertSplitter>(); }
std::unique_ptr<SplitterStep> make_punctuation_splitter(SplitBehavior behavior) {
  return character_splitter([](char32_t c) { return Unicode::get().is(c, Unicode::punctuation); },
                            behavior);
}
std::unique_ptr<SplitterStep> make_digits_splitter(bool individual) {
  return character_splitter(
      [](char32_t c) { return TextProperties::get().is(c, TextProperties::numeric); },
      individual ? SplitBehavior::isolated : SplitBehavior::contiguous);
}
std::unique_ptr<SplitterStep> make_length_splitter(std::size_t characters) {
  return std::make_unique<LengthSplitter>(characters);
}
std::unique_ptr<SplitterStep> make_metaspace_splitter(char32_t replacement, PrependScheme scheme,
                                                      bool splits) {
  return std::make_unique<MetaspaceSplitter>(replacement, scheme, splits);
}
std::unique_ptr<SplitterStep> make_blank_prepender() { return std::make_unique<BlankPrepender>(); }
std::unique_ptr<SplitterStep> make_byte_letter_step() { return std::make_unique<ByteLetterStep>(); }

}  // namespace hasten::tokenizers
