#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>

#include "data/image_module/formats.h"

namespace hasten::images {

namespace {

// The most bytes to which deflate expands one byte.
constexpr std::uint64_t kMaxInflation = 1032;

struct Png {
  std::string_view bytes;
  std::size_t position = 0;
  std::int64_t max_pixels = 0;
  DecodedImage* image = nullptr;
  char message[200] = "";
  png_structp reader = nullptr;
  png_infop info = nullptr;

  ~Png() { png_destroy_read_struct(&reader, &info, nullptr); }
};

void copy_bytes(png_structp reader, png_bytep to, std::size_t count) {
  Png& png = *static_cast<Png*>(png_get_io_ptr(reader));
  if (png.bytes.size() - png.position < count) png_error(reader, "the file ends too early");
  std::memcpy(to, png.bytes.data() + png.position, count);
  png.position += count;
}

[[noreturn]] void handle_error(png_structp reader, const char* message) {
  Png& png = *static_cast<Png*>(png_get_error_ptr(reader));
  std::strncpy(png.message, message, sizeof(png.message) - 1);
  png_longjmp(reader, 1);
}

void ignore_warning(png_structp, const char*) {}

// Sets the conversions to 8 bits, and to gray or red, green and blue without transparency.
void set_conversions(Png& png) {
  const int color = png_get_color_type(png.reader, png.info);
  if (color == PNG_COLOR_TYPE_PALETTE) {
    png_set_palette_to_rgb(png.reader);
  } else if (png_get_bit_depth(png.reader, png.info) < 8) {
    png_set_expand_gray_1_2_4_to_8(png.reader);
  }
  png_set_scale_16(png.reader);
  png_set_strip_alpha(png.reader);
}

// Returns the size of the smallest file with these rows.
std::uint64_t min_file_size(const Png& png) {
  const std::uint64_t rows = png_get_image_height(png.reader, png.info);
  return rows * png_get_rowbytes(png.reader, png.info) / kMaxInflation;
}

bool prepare(Png& png) {
  const int color = png_get_color_type(png.reader, png.info);
  const std::uint64_t minimum = min_file_size(png);
  set_conversions(png);
  const bool is_gray = color == PNG_COLOR_TYPE_GRAY || color == PNG_COLOR_TYPE_GRAY_ALPHA;
  return accept_sizes(*png.image, png_get_image_width(png.reader, png.info),
                      png_get_image_height(png.reader, png.info), is_gray ? 1 : 3, png.max_pixels,
                      minimum, png.bytes.size());
}

void read(Png& png) {
  if (setjmp(png_jmpbuf(png.reader)) != 0) return;
  png_set_read_fn(png.reader, &png, copy_bytes);
  // Skips texts, profiles and everything else that pixels do not need. libpng allocates the length
  // that such a chunk states before it reads the chunk, and keeps up to 8 MB of each of up to a
  // thousand chunks.
  png_set_keep_unknown_chunks(png.reader, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_set_user_limits(png.reader, 0x7fffffff, 0x7fffffff);  // accept_sizes checks the limit
  png_read_info(png.reader, png.info);
  if (!prepare(png)) return;
  const int passes = png_set_interlace_handling(png.reader);
  png_read_update_info(png.reader, png.info);
  const std::size_t row = static_cast<std::size_t>(png.image->width * png.image->channels);
  if (png_get_rowbytes(png.reader, png.info) != row)
    png_error(png.reader, "its colours cannot be converted");
  for (int pass = 0; pass < passes; ++pass) {
    png_bytep to = png.image->pixels.data();
    for (std::int64_t y = 0; y < png.image->height; ++y, to += row)
      png_read_row(png.reader, to, nullptr);
  }
  png_read_end(png.reader, nullptr);  // checks the end of the file
}

}  // namespace

bool is_png(std::string_view bytes) {
  return bytes.substr(0, 8) == std::string_view("\x89PNG\r\n\x1a\n", 8);
}

void decode_png(std::string_view bytes, std::int64_t max_pixels, DecodedImage& image) {
  Png png{.bytes = bytes, .max_pixels = max_pixels, .image = &image};
  png.reader = png_create_read_struct(PNG_LIBPNG_VER_STRING, &png, handle_error, ignore_warning);
  if (png.reader != nullptr) png.info = png_create_info_struct(png.reader);
  if (png.info == nullptr) {
    image.problem = "no memory for its decoder";
    image.expected = "some kilobytes";
    return;
  }
  read(png);
  if (png.message[0] == '\0') return;
  image.problem = std::string("a PNG with the error \"") + png.message + "\"";
  image.expected = "a whole PNG";
}

}  // namespace hasten::images
