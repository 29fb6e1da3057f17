#include "track/event_record.h"

#include <cstdint>
#include <cstring>

#include "base/crc32.h"

namespace hasten {
namespace {

// TensorBoard rotates the checksum, so that a record may contain checksums.
std::uint32_t masked_crc32c(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8;
}

template <class Number>
void append_number(std::string& out, Number value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class Number>
Number number_at(std::string_view bytes, std::size_t position) {
  Number value;
  std::memcpy(&value, bytes.data() + position, sizeof value);
  return value;
}

constexpr std::size_t kHead = 12, kTail = 4;  // Bytes before and after the content.

}  // namespace

std::string event_record(std::string_view bytes) {
  std::string record;
  record.reserve(kHead + bytes.size() + kTail);
  append_number(record, static_cast<std::uint64_t>(bytes.size()));
  append_number(record, masked_crc32c(record));
  record += bytes;
  append_number(record, masked_crc32c(bytes));
  return record;
}

std::optional<std::string_view> next_event_record(std::string_view& rest) {
  if (rest.size() < kHead + kTail) return std::nullopt;
  const auto size = number_at<std::uint64_t>(rest, 0);
  if (masked_crc32c(rest.substr(0, 8)) != number_at<std::uint32_t>(rest, 8)) return std::nullopt;
  if (size > rest.size() - kHead - kTail) return std::nullopt;
  const std::string_view bytes = rest.substr(kHead, size);
  if (masked_crc32c(bytes) != number_at<std::uint32_t>(rest, kHead + size)) return std::nullopt;
  rest.remove_prefix(kHead + size + kTail);
  return bytes;
}

}  // namespace hasten
