// File: hasten/data/images.h
// Datasets of images: PNG and JPEG files become tensors of one size. The loader's workers decode
// them.
//
//   ImageFiles found = list_image_folder("animals");         // animals/cat/1.png, animals/dog/2.jpg
//   ImageDataset train(found.files, at::zeros({100}, at::kLong), {.height = 224, .width = 224}, {.flip = true});
//   auto loader = make_loader(train, {.batch_size = 32, .shuffle = true, .num_workers = 2});
//
// A row has "pixel_values", float [channels, height, width], and "labels" if they are given. Gray
// images are converted to colour and vice versa to match the number of channels (with the weights
// of ITU-R 601 and the rounding of Pillow). Transparency is dropped, 16 bits are reduced to 8, and
// the orientation that a camera recorded is ignored, as in torchvision's image folders. JPEGs with
// CMYK colours are refused.
//
// Resizing uses antialiasing. It calls LibTorch's operator on bytes, as
// torch.nn.functional.interpolate(antialias=True) does, so both give the same bytes on one machine.
// Pillow's bytes differ by at most 1.
//
// Random numbers depend only on the seed, the epoch and the row (hasten/data/context.h). Throws
// DataError "data.image" with the name of the file for an image that is damaged, too large or in an
// unsupported format, "data.image-folder", "data.image-options"; ConfigError "data.image-library"
// if hasten was built without libpng and libjpeg-turbo; IoError "io.*". Thread rule: values; rows
// may be read on several threads.
// Source: torchvision 0.26 and the image processors of transformers 5.23.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/data/context.h"
#include "hasten/formats/detail/tensor_dict.h"

namespace hasten {

struct ImageReadOptions {
  std::int64_t channels = 3;  // 1 for gray; 3 for red, green and blue
  // Images with more pixels are refused; the default is the limit above which Pillow warns.
  std::int64_t max_pixels = 89'478'485;
};

// Returns the image as bytes, [channels, height, width]. `name` names the image in messages.
HASTEN_API at::Tensor decode_image(std::string_view bytes, const std::string& name,
                                   const ImageReadOptions& options = {});
HASTEN_API at::Tensor read_image(const std::filesystem::path& file,
                                 const ImageReadOptions& options = {});

// Resizes bytes or numbers [channels, height, width] with antialiasing.
HASTEN_API at::Tensor resize_image(const at::Tensor& image, std::int64_t height, std::int64_t width,
                                   bool bicubic = false);
// Cuts out the centre; a smaller image gets a border of zeros.
HASTEN_API at::Tensor center_crop(const at::Tensor& image, std::int64_t height, std::int64_t width);

// The steps that turn an image into the input of a model: resize, crop, scale, normalize. from_json
// reads preprocessor_config.json of a model's folder.
struct HASTEN_API ImageProcessing {
  std::int64_t channels = 3;
  // The size to which the whole image is resized. If 0, shortest_edge applies.
  std::int64_t height = 0, width = 0;
  // The size to which the shorter side is resized; the other side keeps the proportion. If 0, the
  // image is not resized.
  std::int64_t shortest_edge = 0;
  bool bicubic = false;  // instead of bilinear
  // The size of the part that is cut out of the middle. If 0, the whole image is used.
  std::int64_t crop_height = 0, crop_width = 0;
  double rescale_factor = 1.0 / 255;  // before normalizing
  // Normalizing subtracts `mean` and divides by `std`. Each has one number per channel or one for
  // all channels.
  std::vector<double> mean = {0.5}, std = {0.5};

  // Understands the keys of ViTImageProcessor and ConvNextImageProcessor. Keys that are absent
  // leave the values of `defaults`.
  static ImageProcessing from_json(const std::string& text, const std::string& where,
                                   const ImageProcessing& defaults);
  // The size of the results.
  std::int64_t out_height() const;
  std::int64_t out_width() const;
  // Throws DataError "data.image-options" if the results have no common size, or a value is out of
  // range.
  void check(const std::string& where) const;
};

// The random changes to images in training.
struct ImageAugmentation {
  // Takes a random part of the image, 8 to 100 % of its area with sides of 3:4 to 4:3, in place of
  // resizing and cropping (torchvision's RandomResizedCrop).
  bool crop = false;
  bool flip = false;  // mirrors half of the images
};

// Returns float [channels, height, width]. `key` determines the random choices.
HASTEN_API at::Tensor process_image(const at::Tensor& image, const ImageProcessing& processing,
                                    const ImageAugmentation& augmentation, std::uint64_t key);

// The files of a folder with a subfolder for each class, and the classes' names.
struct ImageFiles {
  std::vector<std::filesystem::path> files;  // sorted within a class, and by class
  std::vector<std::string> classes;          // the name of each file's class
};
// Lists the .png, .jpg and .jpeg files, also in folders below the subfolders. Other files, and
// names that begin with a dot, are ignored.
HASTEN_API ImageFiles list_image_folder(const std::filesystem::path& folder);

class HASTEN_API ImageDataset {
 public:
  // `labels` [rows, ...] may be undefined. The files must exist.
  ImageDataset(std::vector<std::filesystem::path> files, at::Tensor labels,
               ImageProcessing processing, ImageAugmentation augmentation = {},
               std::int64_t max_pixels = ImageReadOptions{}.max_pixels);

  std::int64_t size() const noexcept { return static_cast<std::int64_t>(files_.size()); }
  TensorDict get(std::int64_t index, const RowContext& context) const;

 private:
  std::vector<std::filesystem::path> files_;
  at::Tensor labels_;
  ImageProcessing processing_;
  ImageAugmentation augmentation_;
  std::int64_t max_pixels_;
};

}  // namespace hasten
