// File: base/crc32.h (internal)
// Checksums of files: CRC-32 for zip and PNG, and CRC-32C for TensorBoard's records and the tensors
// of a checkpoint.
//
//   if (crc32(bytes) != entry.checksum) fail("the checksum is wrong");
//
// They detect damage, not forgery. Thread rule: pure functions, which throw nothing.
// Source: IEEE 802.3 (CRC-32) and RFC 3720 (CRC-32C).
#pragma once

#include <cstdint>
#include <string_view>

#include "base/internal_api.h"

namespace hasten {

HASTEN_INTERNAL_API std::uint32_t crc32(std::string_view bytes) noexcept;
// Uses the CPU's instruction if there is one. `before` is the checksum of the bytes before these.
HASTEN_INTERNAL_API std::uint32_t crc32c(std::string_view bytes, std::uint32_t before = 0) noexcept;
std::uint32_t crc32c_by_tables(std::string_view bytes, std::uint32_t before = 0) noexcept;

}  // namespace hasten
