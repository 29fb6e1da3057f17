#include "hasten/tokenizers/detail/encoding.h"

#include <algorithm>
#include <limits>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

// The upper limit of PadOptions::length and multiple_of, in tokens.
constexpr std::int64_t kMaxRowLength = std::numeric_limits<std::int32_t>::max();

void check(const PadOptions& options) {
  const auto check_size = [](const char* name, std::int64_t value) {
    if (value >= 0 && value <= kMaxRowLength) return;
    throw UsageError("tokenizers.bad-padding",
                     {.what = str("PadOptions::", name),
                      .got = str(value),
                      .expected = str("a number from 0 to ", kMaxRowLength)});
  };
  check_size("length", options.length);
  check_size("multiple_of", options.multiple_of);
}

std::size_t padded_length(std::span<const Encoding> rows, const PadOptions& options) {
  auto length = static_cast<std::size_t>(options.length);
  if (length == 0)
    for (const Encoding& row : rows) length = std::max(length, row.size());
  const auto multiple = static_cast<std::size_t>(options.multiple_of);
  return multiple == 0 ? length : (length + multiple - 1) / multiple * multiple;
}

bool has_offsets(const Encoding& row) { return !row.offsets.empty() || !row.word_ids.empty(); }

// True if a row without tokens gets offsets as well. Such a row does not show whether they were
// requested, but the other rows do. If all rows are without tokens they get them, because a caller
// that has requested offsets reads one for each token.
bool empty_rows_get_offsets(std::span<const Encoding> rows) {
  const auto is_empty = [](const Encoding& row) { return row.size() == 0; };
  return std::any_of(rows.begin(), rows.end(), has_offsets) ||
         std::all_of(rows.begin(), rows.end(), is_empty);
}

template <class T>
void pad_one(std::vector<T>& values, std::size_t length, const T& value, Side side) {
  values.insert(side == Side::right ? values.end() : values.begin(), length - values.size(), value);
}

}  // namespace

void pad(std::span<Encoding> rows, const PadOptions& options) {
  check(options);
  const std::size_t length = padded_length(rows, options);
  const Side side = options.side.value_or(Side::right);
  const bool empty_rows_with_offsets = empty_rows_get_offsets(rows);
  for (Encoding& row : rows) {
    if (row.size() >= length) continue;
    const bool with_offsets = row.size() == 0 ? empty_rows_with_offsets : has_offsets(row);
    pad_one(row.input_ids, length, options.pad_id.value_or(0), side);
    pad_one(row.token_type_ids, length, options.pad_type_id, side);
    pad_one(row.attention_mask, length, 0, side);
    pad_one(row.special_tokens_mask, length, 1, side);
    if (!with_offsets) continue;
    pad_one(row.offsets, length, {0, 0}, side);
    pad_one(row.word_ids, length, -1, side);
  }
}

}  // namespace hasten
