#include "base/crc32.h"

#include <array>
#include <cstddef>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace hasten {
namespace {

// Eight tables, so that each step of the checksum processes eight bytes.
using ChecksumTables = std::array<std::array<std::uint32_t, 256>, 8>;

// `polynomial` has its bits reversed.
constexpr ChecksumTables make_checksum_tables(std::uint32_t polynomial) {
  ChecksumTables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) ? polynomial : 0u);
    tables[0][byte] = value;
  }
  for (std::size_t table = 1; table < 8; ++table) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[table - 1][byte];
      tables[table][byte] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}

constexpr ChecksumTables kTables = make_checksum_tables(0xEDB88320u);
constexpr ChecksumTables kCastagnoliTables = make_checksum_tables(0x82F63B78u);

std::uint32_t checksum(const ChecksumTables& t, std::string_view bytes,
                       std::uint32_t before) noexcept {
  std::uint32_t sum = ~before;
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    std::uint32_t low = 0, high = 0;
    std::memcpy(&low, bytes.data() + at, 4);
    std::memcpy(&high, bytes.data() + at + 4, 4);
    low ^= sum;
    sum = t[7][low & 0xFF] ^ t[6][low >> 8 & 0xFF] ^ t[5][low >> 16 & 0xFF] ^ t[4][low >> 24] ^
          t[3][high & 0xFF] ^ t[2][high >> 8 & 0xFF] ^ t[1][high >> 16 & 0xFF] ^ t[0][high >> 24];
  }
  for (; at < bytes.size(); ++at)
    sum = (sum >> 8) ^ t[0][(sum ^ static_cast<unsigned char>(bytes[at])) & 0xFF];
  return ~sum;
}

#if defined(__x86_64__)
// SSE 4.2 has an instruction for this polynomial.
__attribute__((target("sse4.2"))) std::uint32_t crc32c_by_instruction(
    std::string_view bytes, std::uint32_t before) noexcept {
  std::uint64_t sum = ~before;
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, bytes.data() + at, 8);
    sum = _mm_crc32_u64(sum, eight);
  }
  auto rest = static_cast<std::uint32_t>(sum);
  for (; at < bytes.size(); ++at) rest = _mm_crc32_u8(rest, static_cast<unsigned char>(bytes[at]));
  return ~rest;
}
#endif

}  // namespace

std::uint32_t crc32(std::string_view bytes) noexcept { return checksum(kTables, bytes, 0); }

std::uint32_t crc32c_by_tables(std::string_view bytes, std::uint32_t before) noexcept {
  return checksum(kCastagnoliTables, bytes, before);
}

std::uint32_t crc32c(std::string_view bytes, std::uint32_t before) noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return crc32c_by_instruction(bytes, before);
#endif
  return crc32c_by_tables(bytes, before);
}

}  // namespace hasten
