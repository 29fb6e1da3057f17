#include "track/png.h"

#include <algorithm>
#include <string_view>

#include "base/crc32.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

std::string big_endian(std::uint32_t value) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 0xff);
  return out;
}

std::uint32_t adler32(std::string_view bytes) {
  std::uint32_t a = 1, b = 0;
  for (const char byte : bytes) {
    a = (a + static_cast<unsigned char>(byte)) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

std::string zlib_stream(std::string_view bytes) {
  constexpr std::size_t kMaxBlockBytes = 65535;
  const std::uint32_t checksum = adler32(bytes);
  std::string out = "\x78\x01";
  do {
    const std::string_view block = bytes.substr(0, kMaxBlockBytes);
    bytes.remove_prefix(block.size());
    const auto size = static_cast<std::uint16_t>(block.size()),
               complement = static_cast<std::uint16_t>(~size);
    out += static_cast<char>(bytes.empty() ? 1 : 0);  // 1 marks the last block.
    for (const std::uint16_t number : {size, complement})
      (out += static_cast<char>(number & 0xff)) += static_cast<char>(number >> 8);
    out += block;
  } while (!bytes.empty());
  return out + big_endian(checksum);
}

std::string png_chunk(std::string_view type, std::string_view content) {
  const std::string checked = str(type, content);
  return big_endian(static_cast<std::uint32_t>(content.size())) + checked +
         big_endian(crc32(checked));
}

void check_image(const TrackedImage& image) {
  constexpr std::int64_t kMaxPixels = 1 << 24;  // Pixels in a direction; keeps products in range.
  const bool fits =
      image.height > 0 && image.width > 0 && image.height <= kMaxPixels &&
      image.width <= kMaxPixels && image.channels >= 1 && image.channels <= 4 &&
      static_cast<std::int64_t>(image.pixels.size()) == image.height * image.width * image.channels;
  if (fits) return;
  throw UsageError("track.image",
                   {.what = "image",
                    .got = str(image.pixels.size(), " bytes for ", image.height, " x ", image.width,
                               " pixels with ", image.channels, " channels"),
                    .expected = "height * width * channels bytes and 1 to 4 channels"});
}

}  // namespace

std::string png_of(const TrackedImage& image) {
  check_image(image);
  constexpr char kColourTypes[] = {0, 4, 2, 6};  // By the number of channels.
  std::string header = big_endian(static_cast<std::uint32_t>(image.width)) +
                       big_endian(static_cast<std::uint32_t>(image.height));
  header += {8, kColourTypes[image.channels - 1], 0, 0, 0};  // 8 bits a channel
  const auto row = static_cast<std::size_t>(image.width * image.channels);
  std::string rows;
  rows.reserve((row + 1) * static_cast<std::size_t>(image.height));
  for (std::size_t at = 0; at < image.pixels.size(); at += row) {
    rows += '\0';  // The row is not filtered.
    rows.append(reinterpret_cast<const char*>(image.pixels.data() + at), row);
  }
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header) + png_chunk("IDAT", zlib_stream(rows)) +
         png_chunk("IEND", "");
}

}  // namespace hasten
