#include <torch/torch.h>

#include <algorithm>

#include "data/image_decoder.h"
#include "device/loadable_module.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/data/dataset.h"
#include "hasten/data/images.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

// Larger files are not read, because an image within the limit of pixels is smaller.
constexpr std::uintmax_t kMaxImageFileBytes = 1 << 30;

const Module<ImageDecoder>& decoder() {
  static const Module<ImageDecoder> loaded =
      load_module<ImageDecoder>("libhasten_images.so", "hasten_decode_image");
  if (loaded.function == nullptr) {
    throw ConfigError("data.image-library",
                      {.what = "reading images",
                       .got = loaded.missing,
                       .expected = "the module libhasten_images.so next to libhasten.so",
                       .hint = "install libpng and libjpeg-turbo (Debian: libpng-dev "
                               "libjpeg62-turbo-dev), and build hasten again"});
  }
  return loaded;
}

[[noreturn]] void fail_image(const std::string& name, std::string got, std::string expected,
                             std::string hint = "") {
  throw DataError("data.image", {.what = "image " + name,
                                 .got = std::move(got),
                                 .expected = std::move(expected),
                                 .hint = std::move(hint)});
}

// The luminance of ITU-R 601 with the rounding of Pillow.
at::Tensor gray_of(const at::Tensor& image) {
  const at::Tensor weights = at::tensor({19595, 38470, 7471}, at::kInt).view({3, 1, 1});
  return ((image.to(at::kInt) * weights).sum(0, /*keepdim=*/true, at::kInt) + 0x8000)
      .bitwise_right_shift(16)
      .to(at::kByte);
}

at::Tensor with_channels(const at::Tensor& image, std::int64_t channels) {
  if (image.size(0) == channels) return image;
  return channels == 1 ? gray_of(image) : image.expand({3, -1, -1}).contiguous();
}

bool is_image_name(const fs::path& file) {
  const std::string extension = lower(file.extension().string());
  return extension == ".png" || extension == ".jpg" || extension == ".jpeg";
}

bool is_hidden(const fs::path& path) { return starts_with(path.filename().string(), "."); }

std::vector<fs::path> sorted_entries(const fs::path& folder) {
  std::vector<fs::path> entries;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (!is_hidden(entry.path())) entries.push_back(entry.path());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

std::vector<fs::path> images_below(const fs::path& folder) {
  std::vector<fs::path> files;
  const fs::recursive_directory_iterator end;
  for (fs::recursive_directory_iterator entry(folder); entry != end; ++entry) {
    if (is_hidden(entry->path())) {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file() && is_image_name(entry->path())) {
      files.push_back(entry->path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

[[noreturn]] void fail_folder(const fs::path& folder, std::string got) {
  throw DataError("data.image-folder",
                  {.what = "image folder " + folder.string(),
                   .got = std::move(got),
                   .expected = "a subfolder for each class with .png, .jpg or .jpeg files"});
}

}  // namespace

at::Tensor decode_image(std::string_view bytes, const std::string& name,
                        const ImageReadOptions& options) {
  if ((options.channels != 1 && options.channels != 3) || options.max_pixels < 1) {
    throw UsageError("data.option", {.what = "ImageReadOptions",
                                     .got = str("channels ", options.channels, ", max_pixels ",
                                                options.max_pixels),
                                     .expected = "1 or 3 channels, and at least one pixel"});
  }
  auto decoded = std::make_shared<DecodedImage>();
  decoder().function(bytes, options.max_pixels, *decoded);
  if (!decoded->problem.empty())
    fail_image(name, decoded->problem, decoded->expected, decoded->hint);
  const at::Tensor pixels = at::from_blob(
      decoded->pixels.data(), {decoded->height, decoded->width, decoded->channels},
      [decoded](void*) {}, at::kByte);
  return with_channels(pixels.permute({2, 0, 1}).contiguous(), options.channels);
}

at::Tensor read_image(const fs::path& file, const ImageReadOptions& options) {
  std::error_code ignored;
  const std::uintmax_t bytes = fs::file_size(file, ignored);
  if (!ignored && bytes > kMaxImageFileBytes)
    fail_image(file.string(), str(bytes, " bytes"), str(kMaxImageFileBytes, " bytes or fewer"));
  return decode_image(read_file(file), file.string(), options);
}

ImageFiles list_image_folder(const fs::path& folder) {
  ImageFiles found;
  try {
    for (const fs::path& subfolder : sorted_entries(folder)) {
      if (!fs::is_directory(subfolder)) continue;
      const std::vector<fs::path> files = images_below(subfolder);
      if (files.empty()) fail_folder(folder, "no images in " + subfolder.filename().string());
      found.files.insert(found.files.end(), files.begin(), files.end());
      found.classes.insert(found.classes.end(), files.size(), subfolder.filename().string());
    }
  } catch (const fs::filesystem_error& error) {
    throw IoError("io.read", {.what = "image folder " + folder.string(), .got = error.what()});
  }
  if (found.files.empty()) fail_folder(folder, "no subfolders");
  return found;
}

ImageDataset::ImageDataset(std::vector<fs::path> files, at::Tensor labels,
                           ImageProcessing processing, ImageAugmentation augmentation,
                           std::int64_t max_pixels)
    : files_(std::move(files)),
      labels_(std::move(labels)),
      processing_(std::move(processing)),
      augmentation_(augmentation),
      max_pixels_(max_pixels) {
  processing_.check("ImageProcessing");
  if (labels_.defined() && (labels_.dim() < 1 || labels_.size(0) != size())) {
    throw UsageError("data.option", {.what = "the labels of an ImageDataset",
                                     .got = "shape " + c10::str(labels_.sizes()),
                                     .expected = str(size(), ", one for each file")});
  }
  for (const fs::path& file : files_) {
    std::error_code ignored;
    if (fs::is_regular_file(file, ignored)) continue;
    throw IoError("io.not-found", {.what = "image " + file.string() + ": no such file"});
  }
  if (!files_.empty()) (void)decoder();  // a missing library is reported before the first step
}

TensorDict ImageDataset::get(std::int64_t index, const RowContext& context) const {
  detail::require_row(index, size());
  const fs::path& file = files_[static_cast<std::size_t>(index)];
  const at::Tensor image =
      read_image(file, {.channels = processing_.channels, .max_pixels = max_pixels_});
  TensorDict row = {
      {"pixel_values", process_image(image, processing_, augmentation_, context.key())}};
  if (labels_.defined()) row["labels"] = labels_[index];
  return row;
}

}  // namespace hasten
