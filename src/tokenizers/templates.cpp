#include "tokenizers/templates.h"

#include <algorithm>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::tokenizers {
namespace {

using Kind = TemplatePiece::Kind;

TemplatePiece special(const std::string& token, std::int32_t id, std::int32_t type_id) {
  return {.kind = Kind::special, .type_id = type_id, .name = token, .ids = {id}, .tokens = {token}};
}

// Tokens [begin, end) of one text.
struct Slice {
  const TextTokens* tokens;
  std::size_t begin;
  std::size_t end;
};

Slice cut(const TextTokens& tokens, std::size_t length, Side side) noexcept {
  const std::size_t size = tokens.ids.size();
  return side == Side::right ? Slice{&tokens, 0, length} : Slice{&tokens, size - length, size};
}

class Writer {
 public:
  Writer(std::size_t size, bool offsets) : offsets_(offsets) {
    out_.input_ids.reserve(size);
    out_.token_type_ids.reserve(size);
    out_.special_tokens_mask.reserve(size);
    if (!offsets) return;
    out_.offsets.reserve(size);
    out_.word_ids.reserve(size);
  }

  void add_text(const Slice& slice, std::int32_t type_id) {
    const TextTokens& tokens = *slice.tokens;
    const auto append = [&slice](auto& to, const auto& from) {
      to.insert(to.end(), from.begin() + static_cast<std::ptrdiff_t>(slice.begin),
                from.begin() + static_cast<std::ptrdiff_t>(slice.end));
    };
    append(out_.input_ids, tokens.ids);
    if (offsets_) {
      append(out_.offsets, tokens.offsets);
      append(out_.word_ids, tokens.words);
    }
    out_.token_type_ids.resize(out_.input_ids.size(), type_id);
    out_.special_tokens_mask.resize(out_.input_ids.size(), 0);
  }

  void add_special(const TemplatePiece& piece) {
    out_.input_ids.insert(out_.input_ids.end(), piece.ids.begin(), piece.ids.end());
    out_.token_type_ids.resize(out_.input_ids.size(), piece.type_id);
    out_.special_tokens_mask.resize(out_.input_ids.size(), 1);
    if (!offsets_) return;
    out_.offsets.resize(out_.input_ids.size());
    out_.word_ids.resize(out_.input_ids.size(), -1);
  }

  Encoding finish() && {
    out_.attention_mask.assign(out_.input_ids.size(), 1);
    return std::move(out_);
  }

 private:
  Encoding out_;
  bool offsets_;
};

}  // namespace

Templates bert_templates(const std::string& cls, std::int32_t cls_id, const std::string& sep,
                         std::int32_t sep_id) {
  const TemplatePiece first{.kind = Kind::first_text},
      second{.kind = Kind::second_text, .type_id = 1};
  const TemplatePiece start = special(cls, cls_id, 0), end = special(sep, sep_id, 0),
                      second_end = special(sep, sep_id, 1);
  return {.single = {start, first, end}, .pair = {start, first, end, second, second_end}};
}

Templates plain_templates() {
  const TemplatePiece first{.kind = Kind::first_text},
      second{.kind = Kind::second_text, .type_id = 1};
  return {.single = {first}, .pair = {first, second}, .from_file = false};
}

std::size_t special_count(const std::vector<TemplatePiece>& pieces) noexcept {
  std::size_t count = 0;
  for (const TemplatePiece& piece : pieces) count += piece.ids.size();
  return count;
}

std::pair<std::size_t, std::size_t> kept_lengths(std::size_t first, std::size_t second,
                                                 std::size_t room, Truncation truncation) {
  if (truncation == Truncation::none || first + second <= room) return {first, second};
  if (room == 0) return {0, 0};
  if (truncation == Truncation::longest_first) {
    const std::size_t shorter = std::min(first, second);
    const std::size_t kept_shorter = 2 * shorter <= room ? shorter : room / 2;
    const std::size_t kept_longer = room - kept_shorter;
    return first > second ? std::pair(kept_longer, kept_shorter)
                          : std::pair(kept_shorter, kept_longer);
  }
  const std::size_t excess = first + second - room;
  const bool cut_first = truncation == Truncation::only_first;
  std::size_t& target = cut_first ? first : second;
  if (target <= excess) {
    throw DataError(
        "tokenizers.cannot-truncate",
        {.what = str("the ", cut_first ? "second" : "first", " text leaves no room for the ",
                     cut_first ? "first" : "second", ", and only that one may be truncated"),
         .got = str(first, " and ", second, " tokens"),
         .expected = str("at most ", room, " in total"),
         .hint = "use Truncation::longest_first, or a larger max_length"});
  }
  target -= excess;
  return {first, second};
}

Encoding assemble(const Templates& templates, const TextTokens& first, const TextTokens* second,
                  const EncodeOptions& options) {
  const std::vector<TemplatePiece>& pieces = templates.for_pair(second != nullptr);
  const std::size_t specials = options.add_special_tokens ? special_count(pieces) : 0;
  const std::size_t second_size = second ? second->ids.size() : 0;
  const std::size_t room = options.truncation == Truncation::none
                               ? 0
                               : static_cast<std::size_t>(options.max_length) - specials;
  const auto [kept_first, kept_second] =
      kept_lengths(first.ids.size(), second_size, room, options.truncation);

  const Side side = options.truncation_side.value_or(Side::right);
  Writer writer(kept_first + kept_second + specials, options.offsets);
  for (const TemplatePiece& piece : pieces) {
    if (piece.kind == Kind::first_text)
      writer.add_text(cut(first, kept_first, side), piece.type_id);
    else if (piece.kind == Kind::second_text)
      writer.add_text(cut(*second, kept_second, side), piece.type_id);
    else if (options.add_special_tokens)
      writer.add_special(piece);
  }
  return std::move(writer).finish();
}

}  // namespace hasten::tokenizers
