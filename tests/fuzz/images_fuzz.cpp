// A libFuzzer target for the decoders of PNG and JPEG, with their libraries.
//
// The first byte selects whether the checksums of PNG chunks are corrected, so that the fuzzer need
// not guess them. The number of pixels of an accepted image must match its sizes and stay within
// the limit. For a refused image the decoder must report the problem and what it expected. The
// memory is limited.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/crc32.h"
#include "data/image_decoder.h"
#include "parsed_file.h"

using namespace hasten;

namespace {

constexpr std::int64_t kMaxPixels = 1 << 20;

void require(bool holds) {
  if (!holds) std::abort();
}

std::uint32_t number_at(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<std::uint8_t>(bytes[at + i]);
  return value;
}

std::string with_correct_checksums(std::string bytes) {
  for (std::size_t at = 8; at + 12 <= bytes.size();) {
    const std::size_t length = number_at(bytes, at);
    if (length > bytes.size() - at - 12) break;
    const std::uint32_t sum = crc32(std::string_view(bytes).substr(at + 4, length + 4));
    for (int i = 0; i < 4; ++i)
      bytes[at + 8 + length + i] = static_cast<char>(sum >> (24 - 8 * i) & 0xFF);
    at += length + 12;
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) bytes = with_correct_checksums(std::move(bytes));
  // The largest allowed image takes 3 MiB, and the limit allows 16 MiB in addition to the file.
  const fuzz::MemoryLimit limit(bytes.size());
  DecodedImage image;
  hasten_decode_image(bytes, kMaxPixels, image);
  if (!image.problem.empty()) {
    require(!image.expected.empty());
    return 0;
  }
  require(image.height > 0 && image.width > 0 && image.height * image.width <= kMaxPixels);
  require(image.channels == 1 || image.channels == 3);
  require(image.pixels.size() ==
          static_cast<std::size_t>(image.height * image.width * image.channels));
  return 0;
}
