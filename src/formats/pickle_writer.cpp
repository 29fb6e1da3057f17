#include "formats/pickle_writer.h"

#include <limits>

namespace hasten {

void PickleWriter::little_endian(std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out_ += static_cast<char>(value >> (8 * i));
}

void PickleWriter::text(std::string_view value) {
  const auto known = texts_.find(std::string(value));
  if (known != texts_.end()) return recall(known->second);
  out_ += 'X';
  little_endian(value.size(), 4);
  out_ += value;
  texts_.emplace(value, memoize());
}

void PickleWriter::integer(std::int64_t value) {
  if (value >= std::numeric_limits<std::int32_t>::min() &&
      value <= std::numeric_limits<std::int32_t>::max()) {
    out_ += 'J';
    return little_endian(static_cast<std::uint64_t>(value), 4);
  }
  out_ += "\x8a\x08";  // eight bytes in two's complement
  little_endian(static_cast<std::uint64_t>(value), 8);
}

void PickleWriter::pair(std::int64_t first, std::int64_t second) {
  integer(first);
  integer(second);
  out_ += '\x86';
}

std::uint32_t PickleWriter::memoize() {
  out_ += 'r';
  little_endian(memo_size_, 4);
  return memo_size_++;
}

void PickleWriter::recall(std::uint32_t number) {
  out_ += 'j';
  little_endian(number, 4);
}

}  // namespace hasten
