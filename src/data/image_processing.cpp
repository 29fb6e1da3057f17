#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/strict_json.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/data/images.h"
#include "hasten/data/row_random.h"

namespace hasten {
namespace {

using Json = nlohmann::json;

// Makes the random numbers of images independent of others that are derived from the same row.
constexpr std::uint64_t kImageStream = 0x96c4a1d3b52e870full;
// A larger side is a mistake. The limit also keeps the product of two sides from overflowing.
constexpr std::int64_t kMaxSide = 65536;

[[noreturn]] void fail_options(const std::string& where, const std::string& key, std::string got,
                               std::string expected) {
  throw DataError(
      "data.image-options",
      {.what = where + ", " + key, .got = std::move(got), .expected = std::move(expected)});
}

// The keys of a preprocessor_config.json.
class ProcessingKeys {
 public:
  ProcessingKeys(const Json& object, const std::string& where) : object_(object), where_(where) {}

  bool has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }
  // True unless the file says false.
  bool enabled(const char* key) const { return !has(key) || object_.at(key) != false; }
  double number(const char* key) const {
    if (!object_.at(key).is_number()) fail_options(where_, key, object_.at(key).dump(), "a number");
    return object_.at(key).get<double>();
  }
  // Reads {"height", "width"}, {"shortest_edge"}, or one number.
  void read_size(const char* key, std::int64_t& height, std::int64_t& width,
                 std::int64_t* shortest_edge) const {
    const Json& size = object_.at(key);
    if (size.is_object() && size.contains("shortest_edge") && shortest_edge != nullptr) {
      height = width = 0;
      *shortest_edge = side(key, size.at("shortest_edge"));
    } else if (size.is_object() && size.contains("height") && size.contains("width")) {
      height = side(key, size.at("height"));
      width = side(key, size.at("width"));
    } else {
      height = width = side(key, size);
    }
  }
  std::vector<double> numbers(const char* key) const {
    const Json& list = object_.at(key);
    if (list.is_number()) return {list.get<double>()};
    const auto is_number = [](const Json& item) { return item.is_number(); };
    if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_number))
      fail_options(where_, key, list.dump(), "a list of numbers");
    return list.get<std::vector<double>>();
  }

 private:
  std::int64_t side(const char* key, const Json& value) const {
    if (!value.is_number_integer() || value.get<std::int64_t>() < 1 ||
        value.get<std::int64_t>() > kMaxSide)
      fail_options(where_, key, object_.at(key).dump(), "sizes of 1 to 65536");
    return value.get<std::int64_t>();
  }

  const Json& object_;
  const std::string& where_;
};

Json options_object(const std::string& text, const std::string& where) {
  const auto throw_invalid = [&](const std::string& got) {
    fail_options(where, "the file", got, "preprocessor_config.json");
  };
  Json object;
  try {
    object = parse_strict_json(text);
  } catch (const JsonError& error) {
    throw_invalid(error.what());
  }
  if (!object.is_object()) throw_invalid("text that is not a JSON object");
  return object;
}

// The part of an image that a random crop takes.
struct CropRegion {
  std::int64_t top, left, height, width;
};

CropRegion random_crop_region(std::int64_t height, std::int64_t width, RowRandom& random) {
  const double area = static_cast<double>(height) * static_cast<double>(width);
  const double max_log_ratio = std::log(4.0 / 3.0);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double crop_area = area * (0.08 + 0.92 * random.uniform());
    const double ratio = std::exp(max_log_ratio * (2 * random.uniform() - 1));
    const std::int64_t w = std::llround(std::sqrt(crop_area * ratio));
    const std::int64_t h = std::llround(std::sqrt(crop_area / ratio));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    return {random.below(height - h + 1), random.below(width - w + 1), h, w};
  }
  // Returns the largest part around the center that has allowed proportions.
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  const std::int64_t w =
      ratio > 4.0 / 3.0 ? std::llround(static_cast<double>(height) * 4.0 / 3.0) : width;
  const std::int64_t h =
      ratio < 3.0 / 4.0 ? std::llround(static_cast<double>(width) * 4.0 / 3.0) : height;
  return {(height - h) / 2, (width - w) / 2, h, w};
}

at::Tensor resize_as_configured(const at::Tensor& image, const ImageProcessing& processing) {
  if (processing.height > 0)
    return resize_image(image, processing.height, processing.width, processing.bicubic);
  if (processing.shortest_edge == 0) return image;
  const std::int64_t height = image.size(1), width = image.size(2), edge = processing.shortest_edge;
  const std::int64_t longer = edge * std::max(height, width) / std::min(height, width);
  // The longer side of a thin image could otherwise exhaust the memory.
  if (longer > kMaxSide) {
    throw DataError("data.image", {.what = "the shorter side of an image",
                                   .got = str(height, " x ", width, " pixels, resized to ", longer),
                                   .expected = str("a side of ", kMaxSide, " or less")});
  }
  return height < width ? resize_image(image, edge, longer, processing.bicubic)
                        : resize_image(image, longer, edge, processing.bicubic);
}

// Returns one number for each channel.
at::Tensor channel_tensor(const std::vector<double>& numbers, double factor) {
  std::vector<float> scaled;
  for (const double number : numbers) scaled.push_back(static_cast<float>(number * factor));
  return at::tensor(scaled).view({-1, 1, 1});
}

}  // namespace

at::Tensor resize_image(const at::Tensor& image, std::int64_t height, std::int64_t width,
                        bool bicubic) {
  if (image.size(1) == height && image.size(2) == width) return image;
  const at::Tensor batch = image.unsqueeze(0);
  const at::Tensor resized =
      bicubic ? at::_upsample_bicubic2d_aa(batch, {height, width}, /*align_corners=*/false)
              : at::_upsample_bilinear2d_aa(batch, {height, width}, /*align_corners=*/false);
  return resized.squeeze(0);
}

at::Tensor center_crop(const at::Tensor& image, std::int64_t height, std::int64_t width) {
  const std::int64_t missing_height = std::max<std::int64_t>(height - image.size(1), 0);
  const std::int64_t missing_width = std::max<std::int64_t>(width - image.size(2), 0);
  const at::Tensor padded =
      missing_height + missing_width == 0
          ? image
          : at::constant_pad_nd(image, {missing_width / 2, (missing_width + 1) / 2,
                                        missing_height / 2, (missing_height + 1) / 2});
  // Rounds halves to even, as Python does.
  const auto start = [](std::int64_t free) {
    return static_cast<std::int64_t>(std::nearbyint(static_cast<double>(free) / 2));
  };
  return padded.narrow(1, start(padded.size(1) - height), height)
      .narrow(2, start(padded.size(2) - width), width);
}

ImageProcessing ImageProcessing::from_json(const std::string& text, const std::string& where,
                                           const ImageProcessing& defaults) {
  const Json object = options_object(text, where);
  const ProcessingKeys keys(object, where);
  ImageProcessing out = defaults;
  if (!keys.enabled("do_resize")) {
    out.height = out.width = out.shortest_edge = 0;
  } else if (keys.has("size")) {
    keys.read_size("size", out.height, out.width, &out.shortest_edge);
    // ConvNextImageProcessor, which has crop_pct, reads a single number as the shorter side.
    if (keys.has("crop_pct") && object.at("size").is_number()) {
      out.shortest_edge = out.height;
      out.height = out.width = 0;
    }
  }
  if (keys.has("crop_size") && keys.has("do_center_crop") && keys.enabled("do_center_crop"))
    keys.read_size("crop_size", out.crop_height, out.crop_width, nullptr);
  // A ConvNextImageProcessor resizes images to more than `size` and crops them. If `size` is 384 or
  // more, it does not crop.
  if (keys.has("crop_pct") && out.shortest_edge > 0) {
    const std::int64_t edge = out.shortest_edge;
    const double share = keys.number("crop_pct");
    if (!(share > 0 && share <= 1))
      fail_options(where, "crop_pct", str(share), "more than 0 and at most 1");
    if (edge < 384) {
      const double resized = static_cast<double>(edge) / share;
      if (resized > static_cast<double>(kMaxSide))
        fail_options(where, "crop_pct", str(share), "a share that keeps sizes up to 65536");
      out.shortest_edge = static_cast<std::int64_t>(resized);
      out.crop_height = out.crop_width = edge;
    } else {
      out.shortest_edge = 0;
      out.height = out.width = edge;
    }
  }
  if (keys.has("resample")) {
    const double filter = keys.number("resample");
    if (filter != 2 && filter != 3)
      fail_options(where, "resample", str(filter), "2 (bilinear) or 3 (bicubic)");
    out.bicubic = filter == 3;
  }
  if (keys.has("rescale_factor")) out.rescale_factor = keys.number("rescale_factor");
  if (!keys.enabled("do_rescale")) out.rescale_factor = 1;
  if (keys.has("image_mean")) out.mean = keys.numbers("image_mean");
  if (keys.has("image_std")) out.std = keys.numbers("image_std");
  if (!keys.enabled("do_normalize")) {
    out.mean = {0};
    out.std = {1};
  }
  out.check(where);
  return out;
}

std::int64_t ImageProcessing::out_height() const { return crop_height > 0 ? crop_height : height; }
std::int64_t ImageProcessing::out_width() const { return crop_width > 0 ? crop_width : width; }

void ImageProcessing::check(const std::string& where) const {
  if (channels != 1 && channels != 3)
    fail_options(where, "channels", std::to_string(channels), "1 or 3");
  for (const std::int64_t side : {height, width, shortest_edge, crop_height, crop_width}) {
    if (side < 0 || side > kMaxSide)
      fail_options(where, "the sizes", std::to_string(side), "0 to 65536");
  }
  if (out_height() == 0 || out_width() == 0) {
    fail_options(where, "the sizes", "images of different sizes",
                 "height and width of the resized image, or of a crop");
  }
  if (!(std::isfinite(rescale_factor) && rescale_factor > 0))
    fail_options(where, "rescale_factor", str(rescale_factor), "a number above 0");
  for (const auto* numbers : {&mean, &std}) {
    if (numbers->size() != 1 && static_cast<std::int64_t>(numbers->size()) != channels) {
      fail_options(where, "mean and std", str(numbers->size(), " numbers"),
                   str("1 or ", channels, ", the number of channels"));
    }
  }
  for (const double number : std) {
    if (!(std::isfinite(number) && number > 0))
      fail_options(where, "std", str(number), "numbers above 0");
  }
  for (const double number : mean) {
    if (!std::isfinite(number)) fail_options(where, "mean", str(number), "finite numbers");
  }
}

at::Tensor process_image(const at::Tensor& image, const ImageProcessing& processing,
                         const ImageAugmentation& augmentation, std::uint64_t key) {
  RowRandom random(key ^ kImageStream);
  const std::int64_t height = processing.out_height(), width = processing.out_width();
  at::Tensor resized;
  if (augmentation.crop) {
    const CropRegion region = random_crop_region(image.size(1), image.size(2), random);
    resized = resize_image(image.narrow(1, region.top, region.height)
                               .narrow(2, region.left, region.width)
                               .contiguous(),
                           height, width, processing.bicubic);
  } else {
    resized = center_crop(resize_as_configured(image, processing), height, width);
  }
  if (augmentation.flip && random.below(2) == 1) resized = resized.flip({2});
  // The image processors of transformers also scale mean and deviation instead of the pixels.
  const double scale = 1 / processing.rescale_factor;
  return resized.to(at::kFloat)
      .sub(channel_tensor(processing.mean, scale))
      .div(channel_tensor(processing.std, scale))
      .contiguous();
}

}  // namespace hasten
