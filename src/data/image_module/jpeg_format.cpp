#include <cstdio>  // before jpeglib.h, which needs FILE

#include <jpeglib.h>

#include <jerror.h>

#include <csetjmp>

#include "data/image_module/formats.h"

namespace hasten::images {
namespace {

// A block of 64 pixels takes at least one bit. Chroma may have fewer blocks.
constexpr std::uint64_t kMaxPixelsPerByte = 64 * 8;
// The most scans of a progressive image. libjpeg-turbo recommends a limit, because each scan takes
// a pass over the image.
constexpr int kMaxScans = 200;

struct Jpeg {
  jpeg_error_mgr errors = {};  // the first member, because libjpeg passes its address
  std::string_view bytes;
  std::int64_t max_pixels = 0;
  DecodedImage* image = nullptr;
  char message[JMSG_LENGTH_MAX] = "";
  std::jmp_buf failed = {};
  jpeg_progress_mgr progress = {};
  jpeg_decompress_struct reader = {};

  ~Jpeg() { jpeg_destroy_decompress(&reader); }
};

Jpeg& jpeg_of(j_common_ptr reader) { return *reinterpret_cast<Jpeg*>(reader->err); }

[[noreturn]] void handle_error(j_common_ptr reader) {
  Jpeg& jpeg = jpeg_of(reader);
  reader->err->format_message(reader, jpeg.message);
  std::longjmp(jpeg.failed, 1);
}

// libjpeg warns about data that it cannot read, and fills the rest of the image with gray.
void fail_on_damage(j_common_ptr reader, int level) {
  if (level >= 0) return;  // a trace message
  switch (reader->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_MUST_RESYNC:
    case JWRN_BOGUS_PROGRESSION:
    case JWRN_NOT_SEQUENTIAL:
      handle_error(reader);
  }
}

void limit_scans(j_common_ptr reader) {
  if (reinterpret_cast<j_decompress_ptr>(reader)->input_scan_number <= kMaxScans) return;
  std::snprintf(jpeg_of(reader).message, JMSG_LENGTH_MAX, "more than %d scans", kMaxScans);
  std::longjmp(jpeg_of(reader).failed, 1);
}

// Chooses gray or red, green and blue. Returns false, and sets a problem, if the image has other
// colours.
bool choose_colours(Jpeg& jpeg) {
  jpeg_decompress_struct& reader = jpeg.reader;
  if (reader.data_precision != 8 || reader.arith_code) {
    jpeg.image->problem = "a JPEG of a rare kind (12 bits, or arithmetic coding)";
    jpeg.image->expected = "8 bits and Huffman coding";
    jpeg.image->hint = "convert the image to PNG";
    return false;
  }
  if (reader.num_components != 1 && reader.num_components != 3) {
    jpeg.image->problem =
        std::string("a JPEG of ") + (reader.num_components == 4 ? "CMYK" : "unknown") + " colours";
    jpeg.image->expected = "gray, or red, green and blue";
    jpeg.image->hint = "convert the image to RGB";
    return false;
  }
  reader.out_color_space = reader.num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
  return true;
}

void read(Jpeg& jpeg) {
  if (setjmp(jpeg.failed) != 0) return;
  jpeg_decompress_struct& reader = jpeg.reader;
  jpeg_create_decompress(&reader);
  jpeg.progress.progress_monitor = limit_scans;
  reader.progress = &jpeg.progress;
  jpeg_mem_src(&reader, reinterpret_cast<const unsigned char*>(jpeg.bytes.data()),
               jpeg.bytes.size());
  jpeg_read_header(&reader, TRUE);
  if (!choose_colours(jpeg)) return;
  const std::uint64_t pixels = static_cast<std::uint64_t>(reader.image_width) * reader.image_height;
  if (!accept_sizes(*jpeg.image, reader.image_width, reader.image_height, reader.num_components,
                    jpeg.max_pixels, pixels / kMaxPixelsPerByte, jpeg.bytes.size()))
    return;
  jpeg_start_decompress(&reader);
  const std::size_t row = static_cast<std::size_t>(jpeg.image->width * jpeg.image->channels);
  while (reader.output_scanline < reader.output_height) {
    JSAMPROW to = jpeg.image->pixels.data() + reader.output_scanline * row;
    jpeg_read_scanlines(&reader, &to, 1);
  }
  jpeg_finish_decompress(&reader);
}

}  // namespace

bool is_jpeg(std::string_view bytes) {
  return bytes.substr(0, 3) == std::string_view("\xff\xd8\xff", 3);
}

void decode_jpeg(std::string_view bytes, std::int64_t max_pixels, DecodedImage& image) {
  Jpeg jpeg;
  jpeg.bytes = bytes;
  jpeg.max_pixels = max_pixels;
  jpeg.image = &image;
  jpeg.reader.err = jpeg_std_error(&jpeg.errors);
  jpeg.errors.error_exit = handle_error;
  jpeg.errors.emit_message = fail_on_damage;
  read(jpeg);
  if (jpeg.message[0] == '\0') return;
  image.problem = std::string("a JPEG with the error \"") + jpeg.message + "\"";
  image.expected = "a whole JPEG";
}

}  // namespace hasten::images
