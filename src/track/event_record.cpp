#include "track/event_record.h"

#include <array>
#include <cstdint>
#include <cstring>

namespace hasten {
namespace {

constexpr std::array<std::uint32_t, 256> crc32c_table() {
  constexpr std::uint32_t kPolynomial = 0x82f63b78;  // Castagnoli's, with its bits reversed.
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    table[byte] = byte;
    for (int bit = 0; bit < 8; ++bit)
      table[byte] = table[byte] >> 1 ^ ((table[byte] & 1) != 0 ? kPolynomial : 0);
  }
  return table;
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  static constexpr auto kTable = crc32c_table();
  std::uint32_t crc = ~0u;
  for (const char byte : bytes)
    crc = crc >> 8 ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  crc = ~crc;
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
