// File: data/image_decoder.h (internal)
// The interface of the module libhasten_images.so, which decodes PNG and JPEG with libpng and
// libjpeg-turbo. It is a separate library so that hasten needs neither of them.
//
//   DecodedImage image;
//   hasten_decode_image(bytes, /*max_pixels=*/1'000'000, image);
//   if (!image.problem.empty()) fail(image.problem, image.expected);
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hasten {

struct DecodedImage {
  std::int64_t height = 0, width = 0;
  std::int64_t channels = 0;         // 1 (gray) or 3 (red, green, blue)
  std::vector<std::uint8_t> pixels;  // [height, width, channels]
  // The parts of the error message if the image cannot be used; empty otherwise.
  std::string problem, expected, hint;
};

using ImageDecoder = void(std::string_view bytes, std::int64_t max_pixels, DecodedImage& image);

}  // namespace hasten

extern "C" __attribute__((visibility("default"))) hasten::ImageDecoder hasten_decode_image;
