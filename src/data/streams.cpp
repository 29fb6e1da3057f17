#include "hasten/data/streams.h"

#include <utility>

#include "hasten/base/error.h"
#include "hasten/data/context.h"

namespace hasten::detail {

void check_buffer(std::int64_t buffer_size) {
  if (buffer_size >= 1) return;
  throw UsageError("data.option", {.what = "shuffle_rows: buffer_size",
                                   .got = std::to_string(buffer_size),
                                   .expected = "at least 1"});
}

RowRandom shuffle_random(std::uint64_t seed, std::int64_t epoch) {
  return RowRandom(mix_key(seed, static_cast<std::uint64_t>(epoch), 1));
}

ShuffleDraws::ShuffleDraws(std::int64_t buffer_size, std::int64_t filled, RowRandom random)
    : buffer_size_(buffer_size), random_(random) {
  for (std::int64_t i = 0; i < filled; ++i) slots_.push_back({.number = i});
}

void ShuffleDraws::draw(std::int64_t rows) {
  for (; rows > 0; --rows) {
    while (static_cast<std::int64_t>(slots_.size()) < buffer_size_)
      slots_.push_back({.is_from_stream = true, .number = rows_read_++});
    const auto drawn =
        static_cast<std::size_t>(random_.below(static_cast<std::int64_t>(slots_.size())));
    std::swap(slots_[drawn], slots_.back());
    slots_.pop_back();
  }
}

}  // namespace hasten::detail
