// Writes valid and invalid PNG files. The pixels are stored without compression, and every part of
// the file can be changed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/crc32.h"

namespace hasten::images {

inline std::string big_endian(std::uint32_t value) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 0xFF);
  return out;
}

inline std::string chunk(const std::string& type, const std::string& data) {
  return big_endian(static_cast<std::uint32_t>(data.size())) + type + data +
         big_endian(crc32(type + data));
}

// Returns a zlib stream of stored blocks.
inline std::string stored(std::string_view data) {
  std::string out = "\x78\x01";
  std::uint32_t a = 1, b = 0;
  for (const char each : data) {
    a = (a + static_cast<std::uint8_t>(each)) % 65521;
    b = (b + a) % 65521;
  }
  while (true) {
    const std::string_view block = data.substr(0, 65535);
    data.remove_prefix(block.size());
    const auto length = static_cast<std::uint16_t>(block.size());
    out += data.empty() ? '\1' : '\0';
    for (const unsigned number : {unsigned{length}, ~unsigned{length}}) {
      out += static_cast<char>(number & 0xFF);
      out += static_cast<char>(number >> 8 & 0xFF);
    }
    out += block;
    if (data.empty()) break;
  }
  return out + big_endian(b << 16 | a);
}

// Returns a zlib stream of 1 + 258 * `repeats` zero bytes in about repeats * 13 / 8 bytes. It is
// one literal followed by copies of the previous byte, in a block with deflate's fixed codes.
inline std::string compressed_zeros(std::uint32_t repeats) {
  std::string bits =
      "110"
      "00110000";  // the last block, with fixed codes; the literal 0
  for (std::uint32_t i = 0; i < repeats; ++i) bits += "1100010100000";  // length 258, distance 1
  bits += "0000000";
  std::string out = "\x78\x01" + std::string((bits.size() + 7) / 8, '\0');
  for (std::size_t i = 0; i < bits.size(); ++i)
    if (bits[i] == '1') out[2 + i / 8] = static_cast<char>(out[2 + i / 8] | 1 << i % 8);
  return out + big_endian((1 + 258 * repeats) % 65521 << 16 | 1);
}

struct PngOptions {
  std::uint32_t height = 1, width = 1;
  std::uint8_t bits = 8, color_type = 0;  // 0 means gray, 2 means red, green and blue
  std::string before_pixels;              // chunks between the header and the pixels
};

// Returns a PNG file. `pixels` has the rows without the filter byte of each row.
inline std::string png(std::string_view pixels, const PngOptions& options) {
  std::string rows;
  const std::size_t row = options.height > 0 ? pixels.size() / options.height : 0;
  for (std::size_t at = 0; row > 0 && at + row <= pixels.size(); at += row)
    rows.append(1, '\0').append(pixels.substr(at, row));
  const std::string header = big_endian(options.width) + big_endian(options.height) +
                             static_cast<char>(options.bits) +
                             static_cast<char>(options.color_type) + std::string(3, '\0');
  return std::string("\x89PNG\r\n\x1a\n", 8) + chunk("IHDR", header) + options.before_pixels +
         chunk("IDAT", stored(rows)) + chunk("IEND", "");
}

}  // namespace hasten::images
