// File: tokenizers/pipeline/aligned_text.h
// A text that the parts of a tokenizer change and split, with the place in the original text that
// each of its bytes comes from.
//
//   AlignedBuffer out(/*tracks=*/true);
//   Rewriter rewriter(source, out);           // replaces the text of `source`
//   for (each character c) rewriter.add(lower(c), 0);
//   rewriter.finish();
//
// The rules are the same as in Hugging Face's NormalizedString, so that offsets are equal even
// where they are surprising: an inserted character has the place of the one before it, and a
// character that is inserted before all others has an empty place.
//
// Thread rule: plain values. Throws std::bad_alloc, and what require_text_size throws.
// Source: Hugging Face tokenizers 0.23.3, tokenizer/normalizer.rs and pre_tokenizer.rs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hasten::tokenizers {

// The maximum number of bytes of a text, before and after normalization. Places are 32-bit numbers,
// and a small file can request a step that doubles a text many times.
inline constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;
// Throws DataError "tokenizers.text-too-long" if a text has more bytes.
void require_text_size(std::size_t bytes);

// The bytes [begin, end) of the original text that a byte stands for.
struct Alignment {
  std::uint32_t begin;
  std::uint32_t end;
};

// A text, and the bytes [source_begin, source_end) of the original text that it stands for. Its
// `alignments`, one for each byte, are null if they are not tracked.
struct AlignedView {
  std::string_view bytes;
  const Alignment* alignments = nullptr;
  std::uint32_t source_begin = 0;
  std::uint32_t source_end = 0;

  bool tracks() const noexcept { return alignments != nullptr; }
};

struct AlignedBuffer {
  explicit AlignedBuffer(bool tracks_places = false) : tracks(tracks_places) {}

  std::string bytes;
  std::vector<Alignment> alignments;
  bool tracks;

  void clear() noexcept {
    bytes.clear();
    alignments.clear();
  }
  // Appends unchanged text, which begins at byte `source_begin` of the original.
  void append_original(std::string_view text, std::uint32_t source_begin);
  void append(const AlignedView& view, std::size_t begin, std::size_t end);
  void append(std::string_view text, Alignment place);
  void append(char32_t c, Alignment place);
  AlignedView view(std::uint32_t source_begin, std::uint32_t source_end) const noexcept;
};

// The bytes of a view that stand for its whole source. These are all bytes unless some of them have
// an empty place.
struct ByteRange {
  std::size_t begin;
  std::size_t end;
};
ByteRange range_of_source(const AlignedView& view) noexcept;

// Replaces a part of a text character by character.
class Rewriter {
 public:
  // Replaces the bytes that stand for the whole source, without the first `removed` characters.
  Rewriter(const AlignedView& source, AlignedBuffer& out, std::size_t removed = 0);
  Rewriter(const AlignedView& source, ByteRange range, AlignedBuffer& out, std::size_t removed = 0);

  // Appends a character. `change` is 0 if it replaces the next one, 1 if it is inserted after it,
  // and -n if it replaces the next one and n characters after that are removed.
  void add(char32_t c, int change);
  // Appends the bytes after the replaced ones.
  void finish();

 private:
  void skip_characters(std::size_t count) noexcept;

  const AlignedView source_;
  const ByteRange range_;
  AlignedBuffer& out_;
  std::size_t next_;  // the next byte of the source to be replaced
};

// A part of a split text: its bytes [begin, end), the bytes of the original text that it stands
// for, and the added token that it is, or -1.
struct TextPart {
  std::uint32_t begin;
  std::uint32_t end;
  std::uint32_t source_begin;
  std::uint32_t source_end;
  std::int32_t token = -1;
};

struct SplitText {
  AlignedBuffer text;
  std::vector<TextPart> parts;

  AlignedView view(const TextPart& part) const noexcept;
  // Returns the part [begin, end) of the bytes, which must not be empty.
  TextPart slice(std::size_t begin, std::size_t end, std::int32_t token = -1) const noexcept;
};

}  // namespace hasten::tokenizers
