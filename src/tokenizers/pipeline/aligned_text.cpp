#include "tokenizers/pipeline/aligned_text.h"

#include <algorithm>

#include "base/utf8.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::tokenizers {

void require_text_size(std::size_t bytes) {
  if (bytes <= kMaxTextBytes) return;
  throw DataError("tokenizers.text-too-long",
                  {.what = "a text of more than 1 GiB, before or after normalization",
                   .got = human_bytes(static_cast<std::int64_t>(bytes)),
                   .hint = "split it into shorter texts"});
}

void AlignedBuffer::append_original(std::string_view text, std::uint32_t source_begin) {
  bytes += text;
  if (!tracks) return;
  alignments.reserve(alignments.size() + text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::uint32_t size = decode_utf8(text.data() + at).size;
    const auto begin = source_begin + static_cast<std::uint32_t>(at);
    alignments.insert(alignments.end(), size, Alignment{begin, begin + size});
    at += size;
  }
}

void AlignedBuffer::append(const AlignedView& view, std::size_t begin, std::size_t end) {
  bytes.append(view.bytes.substr(begin, end - begin));
  if (tracks) alignments.insert(alignments.end(), view.alignments + begin, view.alignments + end);
}

void AlignedBuffer::append(std::string_view text, Alignment place) {
  bytes += text;
  if (tracks) alignments.insert(alignments.end(), text.size(), place);
}

void AlignedBuffer::append(char32_t c, Alignment place) {
  char text[4];
  append(std::string_view(text, encode_utf8(c, text)), place);
}

AlignedView AlignedBuffer::view(std::uint32_t source_begin,
                                std::uint32_t source_end) const noexcept {
  return {bytes, tracks ? alignments.data() : nullptr, source_begin, source_end};
}

ByteRange range_of_source(const AlignedView& view) noexcept {
  const std::size_t size = view.bytes.size();
  if (!view.tracks()) return {0, size};
  if (view.source_begin >= view.source_end) return {0, 0};
  const Alignment first = size > 0 ? view.alignments[0] : Alignment{0, 0};
  if (size > 0 && first.begin < first.end && first.begin >= view.source_begin &&
      view.alignments[size - 1].end <= view.source_end)
    return {0, size};
  std::size_t begin = size, end = 0;
  for (std::size_t i = 0; i < size && view.alignments[i].end <= view.source_end; ++i) {
    const Alignment place = view.alignments[i];
    if (begin == size && view.source_begin <= place.begin && place.begin != place.end) begin = i;
    end = i + 1;
  }
  return {std::min(begin, end), end};
}

Rewriter::Rewriter(const AlignedView& source, AlignedBuffer& out, std::size_t removed)
    : Rewriter(source, range_of_source(source), out, removed) {}

Rewriter::Rewriter(const AlignedView& source, ByteRange range, AlignedBuffer& out,
                   std::size_t removed)
    : source_(source), range_(range), out_(out), next_(range.begin) {
  out_.append(source_, 0, range_.begin);
  skip_characters(removed);
}

void Rewriter::skip_characters(std::size_t count) noexcept {
  for (; count > 0 && next_ < range_.end; --count)
    next_ += decode_utf8(source_.bytes.data() + next_).size;
}

void Rewriter::add(char32_t c, int change) {
  if (!out_.tracks) return out_.append(c, {});
  Alignment place{source_.source_begin, source_.source_begin};
  const std::size_t size = source_.bytes.size();
  if (change > 0) {
    if (next_ > 0) place = source_.alignments[next_ - 1];
  } else if (size > 0) {
    place = source_.alignments[std::min(next_, size - 1)];
    skip_characters(1 + static_cast<std::size_t>(-change));
  }
  out_.append(c, place);
}

void Rewriter::finish() { out_.append(source_, range_.end, source_.bytes.size()); }

AlignedView SplitText::view(const TextPart& part) const noexcept {
  return {std::string_view(text.bytes).substr(part.begin, part.end - part.begin),
          text.tracks ? text.alignments.data() + part.begin : nullptr, part.source_begin,
          part.source_end};
}

TextPart SplitText::slice(std::size_t begin, std::size_t end, std::int32_t token) const noexcept {
  TextPart part{static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end), 0, 0, token};
  if (text.tracks) {
    part.source_begin = text.alignments[begin].begin;
    part.source_end = std::max(part.source_begin, text.alignments[end - 1].end);
  }
  return part;
}

}  // namespace hasten::tokenizers
