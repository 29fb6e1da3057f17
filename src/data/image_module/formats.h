// File: data/image_module/formats.h (internal)
// The decoders of the module, and the code that they share. Both libraries report errors by
// longjmp, so the functions that call them have no objects with destructors: everything is in the
// state that their callers own.
//
//   if (is_png(bytes)) decode_png(bytes, max_pixels, image);
//
// Thread rule: any thread.
#pragma once

#include <string>
#include <string_view>

#include "data/image_decoder.h"

namespace hasten::images {

bool is_png(std::string_view bytes);
bool is_jpeg(std::string_view bytes);
void decode_png(std::string_view bytes, std::int64_t max_pixels, DecodedImage& image);
void decode_jpeg(std::string_view bytes, std::int64_t max_pixels, DecodedImage& image);

inline std::string count_text(std::uint64_t count, const char* noun) {
  return std::to_string(count) + " " + noun;
}

// Sets the sizes, and allocates the pixels. `min_file_bytes` is the size of the smallest file that
// can hold such an image. Smaller files are refused, so that they cannot request a lot of memory.
// Returns false, and sets a problem, if the sizes are refused.
inline bool accept_sizes(DecodedImage& image, std::uint64_t width, std::uint64_t height,
                         std::int64_t channels, std::int64_t max_pixels,
                         std::uint64_t min_file_bytes, std::uint64_t file_bytes) {
  const std::string sizes = std::to_string(width) + " x " + std::to_string(height) + " pixels";
  if (width == 0 || height == 0 ||
      width > static_cast<std::uint64_t>(max_pixels) / (height > 0 ? height : 1)) {
    image.problem = sizes;
    image.expected = "1 to " + count_text(static_cast<std::uint64_t>(max_pixels), "pixels");
    return false;
  }
  if (file_bytes < min_file_bytes) {
    image.problem = sizes + " in " + count_text(file_bytes, "bytes");
    image.expected = "at least " + count_text(min_file_bytes, "bytes for an image of this size");
    image.hint = "the file is damaged";
    return false;
  }
  image.width = static_cast<std::int64_t>(width);
  image.height = static_cast<std::int64_t>(height);
  image.channels = channels;
  image.pixels.resize(static_cast<std::size_t>(width * height) *
                      static_cast<std::size_t>(channels));
  return true;
}

}  // namespace hasten::images
