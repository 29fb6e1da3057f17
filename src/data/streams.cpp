#include "hasten/data/streams.h"

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

}  // namespace hasten::detail
