#include <exception>

#include "data/image_module/formats.h"

namespace {

using namespace hasten;
using namespace hasten::images;

// Returns the name of a common image format that hasten does not decode, for the error message.
const char* known_format(std::string_view bytes) {
  if (bytes.substr(0, 4) == "GIF8") return "a GIF";
  if (bytes.substr(0, 2) == "BM") return "a BMP";
  if (bytes.substr(0, 4) == "RIFF" && bytes.size() > 12 && bytes.substr(8, 4) == "WEBP")
    return "a WebP";
  if (bytes.substr(0, 3) == "II*" || bytes.substr(0, 3) == std::string_view("MM\0", 3))
    return "a TIFF";
  return bytes.empty() ? "an empty file" : "a file of another format";
}

}  // namespace

void hasten_decode_image(std::string_view bytes, std::int64_t max_pixels, DecodedImage& image) {
  try {
    if (is_png(bytes)) {
      decode_png(bytes, max_pixels, image);
    } else if (is_jpeg(bytes)) {
      decode_jpeg(bytes, max_pixels, image);
    } else {
      image.problem = known_format(bytes);
      image.expected = "a PNG or a JPEG";
    }
  } catch (const std::exception& error) {
    image.problem = error.what();
    image.expected = "memory for its pixels";
  }
}
