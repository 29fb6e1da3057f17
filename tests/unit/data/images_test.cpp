// Images from files: refused if they are damaged, otherwise of the size that a model takes. The
// pixels are compared with Pillow's in tests/oracle/images_test.cpp.
#include "hasten/data/images.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <filesystem>

#include "hasten/base/files.h"
#include "hasten/data/loader.h"
#include "hasten/device/memory.h"
#include "images/png_writer.h"
#include "skip.h"
#include "unit/data/error_of.h"

namespace data_images_test {

using namespace hasten;
namespace fs = std::filesystem;

namespace {

std::string gray_png(std::uint32_t height, std::uint32_t width) {
  std::string pixels;
  for (std::uint32_t i = 0; i < height * width; ++i) pixels += static_cast<char>(i * 7);
  return images::png(pixels, {.height = height, .width = width});
}

// Without libpng and libjpeg-turbo hasten cannot decode; then the error names the packages.
bool can_decode() {
  try {
    (void)decode_image(gray_png(1, 1), "probe");
    return true;
  } catch (const ConfigError& error) {
    CHECK(contains(error.what(), "libpng-dev"));
    skip_test("libpng or libjpeg-turbo is missing (Debian: libpng-dev, libjpeg62-turbo-dev)");
    return false;
  }
}

std::string error_for(const std::string& bytes, const ImageReadOptions& options = {}) {
  return error_of([&] { (void)decode_image(bytes, "a.png", options); });
}

TensorDict row_of(const ImageDataset& dataset, std::int64_t row, std::int64_t epoch) {
  return dataset.get(row, {.seed = 42, .epoch = epoch, .row = row});
}

}  // namespace

TEST_CASE("images: a PNG becomes bytes, gray or coloured") {
  if (!can_decode()) return;
  const at::Tensor gray = decode_image(gray_png(3, 5), "a.png", {.channels = 1});
  CHECK(at::equal(gray, (at::arange(15) * 7).to(at::kByte).view({1, 3, 5})));
  CHECK(at::equal(decode_image(gray_png(3, 5), "a.png"), gray.expand({3, 3, 5})));
  const std::string rgb = images::png({"\xff\0\0\0\xff\0\0\0\xff\x0a\x0a\x0a", 12},
                                      {.height = 2, .width = 2, .color_type = 2});
  CHECK(at::equal(decode_image(rgb, "a.png", {.channels = 1}).flatten(),
                  at::tensor({76, 150, 29, 10}, at::kByte)));
  // 16 bits are scaled, not cut off.
  const std::string deep = images::png({"\x00\xff\xff\x00", 4}, {.width = 2, .bits = 16});
  CHECK(at::equal(decode_image(deep, "a.png", {.channels = 1}).flatten(),
                  at::tensor({1, 254}, at::kByte)));
}

TEST_CASE("images: the error for a damaged file or another format names the file") {
  if (!can_decode()) return;
  const std::string whole = gray_png(20, 20);
  CHECK(error_for(whole) == "none");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::string error = error_for(whole.substr(0, length));
    CAPTURE(length);
    CHECK(contains(error, "data.image | image a.png: got "));
  }
  std::string flipped = whole;
  flipped[60] ^= 1;  // a pixel, so that the checksum is wrong
  CHECK(contains(error_for(flipped), "got a PNG with the error"));
  CHECK(contains(error_for(""), "got an empty file, expected a PNG or a JPEG"));
  CHECK(contains(error_for("GIF89a"), "got a GIF"));
  CHECK(contains(error_for("BM1"), "got a BMP"));
  CHECK(contains(error_for("RIFF1234WEBPVP8 "), "got a WebP"));
  CHECK(contains(error_for(std::string("II*\0", 4)), "got a TIFF"));
  CHECK(contains(error_for(std::string("MM\0*", 4)), "got a TIFF"));
  CHECK(contains(error_for("no image"), "got a file of another format"));
  CHECK(contains(error_for(whole, {.channels = 2}), "data.option"));
  CHECK(contains(error_for(whole, {.max_pixels = 0}), "data.option"));
  const TemporaryDirectory scratch;
  write_file_atomically(scratch.path() / "huge.png", "");
  fs::resize_file(scratch.path() / "huge.png", (std::uintmax_t{1} << 30) + 1);  // takes no space
  CHECK(contains(error_of([&] { (void)read_image(scratch.path() / "huge.png"); }),
                 "got 1073741825 bytes, expected 1073741824 bytes or fewer"));
  CHECK(contains(error_for("\xff\xd8\xff"), "data.image | image a.png: got a JPEG with the error"));
  CHECK(contains(error_of([] { (void)read_image("/nonexistent/a.png"); }), "/nonexistent/a.png"));
}

TEST_CASE("images: false sizes are refused before memory is allocated") {
  if (!can_decode()) return;
  const std::string limit = error_for(gray_png(20, 20), {.max_pixels = 399});
  CHECK(contains(limit, "got 20 x 20 pixels, expected 1 to 399 pixels"));
  const std::int64_t before = host_memory().peak_resident;
  const auto claims = [](std::uint32_t height, std::uint32_t width) {
    return images::png(std::string(100, '\1'), {.height = height, .width = width});
  };
  CHECK(contains(error_for(claims(9000, 9000)), "expected at least 78488 bytes"));
  CHECK(contains(error_for(claims(0x7fffffff, 0x7fffffff)), "data.image | image a.png"));
  CHECK(contains(error_for(claims(0x7fffffff, 1)), "expected 1 to 89478485 pixels"));
  CHECK(contains(error_for(claims(0, 10)), "data.image | image a.png"));
  // A JPEG of 65,500 x 1,300 pixels in a few bytes: its header, and no more.
  const std::string jpeg(
      "\xff\xd8\xff\xc0\x00\x0b\x08\xff\xdc\x05\x14\x01\x01\x11\x00"
      "\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00",
      25);
  CHECK(contains(error_for(jpeg), "65500"));
  CHECK(host_memory().peak_resident - before < 20'000'000);
}

TEST_CASE("images: compressed texts of a PNG take no memory") {
  if (!can_decode()) return;
  // A text that inflates to more than libpng's limit, and one with a wrong checksum.
  std::string text =
      images::chunk("zTXt", std::string("k\0\0", 3) + images::stored(std::string(9'000'000, 'x')));
  CHECK(error_for(images::png("\1", {.before_pixels = text})) == "none");
  text.back() ^= 1;
  CHECK(error_for(images::png("\1", {.before_pixels = text})) == "none");
  // Sixty texts below that limit, 470 MB together, which libpng would keep.
  const std::string one =
      images::chunk("zTXt", std::string("k\0\0", 3) + images::compressed_zeros(30'400));
  std::string texts;
  for (int i = 0; i < 60; ++i) texts += one;
  const std::int64_t before = host_memory().peak_resident;
  CHECK(error_for(images::png("\1", {.before_pixels = texts})) == "none");
  CHECK(host_memory().peak_resident - before < 50'000'000);
}

TEST_CASE("images: the centre is cut out as torchvision does, and small images get a border") {
  const at::Tensor image = at::arange(35).view({1, 5, 7});
  CHECK(at::equal(center_crop(image, 3, 3), image.narrow(1, 1, 3).narrow(2, 2, 3)));
  // Half a pixel is rounded to even: (5 - 2) / 2 to 2, (7 - 6) / 2 to 0.
  CHECK(at::equal(center_crop(image, 2, 6), image.narrow(1, 2, 2).narrow(2, 0, 6)));
  const at::Tensor wide = center_crop(image, 8, 7);
  CHECK(wide.sizes() == at::IntArrayRef({1, 8, 7}));
  CHECK(at::equal(wide.narrow(1, 1, 5), image));
  CHECK(wide.narrow(1, 6, 2).abs().sum().item<double>() == 0);
}

TEST_CASE("images: preprocessor_config.json of both processors is read") {
  const ImageProcessing vit = ImageProcessing::from_json(
      R"({"image_processor_type": "ViTImageProcessor", "do_resize": true, "resample": 2,
          "size": {"height": 32, "width": 48}, "image_mean": [0.1, 0.2, 0.3], "image_std": [1, 1, 2]})",
      "p.json", {});
  CHECK(vit.out_height() == 32);
  CHECK(vit.out_width() == 48);
  CHECK(!vit.bicubic);
  CHECK((vit.std == std::vector<double>{1, 1, 2}));
  const ImageProcessing convnext = ImageProcessing::from_json(
      R"({"size": {"shortest_edge": 224}, "crop_pct": 0.875, "resample": 3})", "p.json", {});
  CHECK(convnext.shortest_edge == 256);
  CHECK(convnext.out_height() == 224);
  CHECK(convnext.bicubic);
  // Old files of this processor have a number, which is the shorter side too.
  const ImageProcessing older = ImageProcessing::from_json(
      R"({"size": 224, "crop_pct": 0.875, "resample": 3})", "p.json", {.height = 32, .width = 32});
  CHECK(older.shortest_edge == 256);
  CHECK(older.height == 0);
  CHECK(older.out_height() == 224);
  const at::Tensor out = process_image(at::full({3, 300, 500}, 255, at::kByte), convnext, {}, 0);
  CHECK(out.sizes() == at::IntArrayRef({3, 224, 224}));
  CHECK(at::equal(out, at::ones_like(out)));
  const auto error = [](const char* text) {
    return error_of([&] { (void)ImageProcessing::from_json(text, "p.json", {}); });
  };
  CHECK(contains(error("[]"), "data.image-options | p.json, the file"));
  CHECK(contains(error(R"({"size": {"shortest_edge": 10}})"), "images of different sizes"));
  CHECK(contains(error(R"({"size": -4})"), "got -4, expected sizes of 1 to 65536"));
  CHECK(contains(error(R"({"size": 8, "resample": 0})"), "2 (bilinear) or 3 (bicubic)"));
  CHECK(contains(error(R"({"size": 8, "image_std": [1, 0, 1]})"), "numbers above 0"));
  CHECK(contains(error(R"({"size": 8, "image_mean": [1, 0]})"), "got 2 numbers, expected 1 or 3"));
  CHECK(contains(error(R"({"size": 8, "size": 8})"), "p.json, the file"));
  CHECK(contains(error(R"({"size": 8, "resample": "2"})"), "got \"2\", expected a number"));
  CHECK(contains(error(R"({"size": 8, "image_mean": "0"})"), "expected a list of numbers"));
  CHECK(contains(error(R"({"size": 8, "image_mean": [0, "0"]})"), "expected a list of numbers"));
  CHECK(contains(error(R"({"size": 8, "rescale_factor": 0})"), "a number above 0"));
  CHECK(contains(error(R"({"size": 8, "rescale_factor": 1e400})"), "p.json, the file"));
  CHECK(contains(error(R"({"size": {"shortest_edge": 8}, "crop_pct": 0})"),
                 "more than 0 and at most 1"));
  CHECK(contains(error(R"({"size": {"shortest_edge": 300}, "crop_pct": 1e-9})"),
                 "a share that keeps sizes up to 65536"));
  CHECK(contains(error(R"({"size": {"height": 8, "width": 65537}})"), "sizes of 1 to 65536"));
  CHECK(contains(error(R"({"do_resize": false})"), "images of different sizes"));
  const ImageProcessing large = ImageProcessing::from_json(
      R"({"size": {"shortest_edge": 384}, "crop_pct": 0.5})", "p.json", {});
  CHECK(large.shortest_edge == 0);
  CHECK(large.out_height() == 384);
  const ImageProcessing cropped = ImageProcessing::from_json(
      R"({"size": {"shortest_edge": 9}, "do_center_crop": true, "crop_size": 8, "do_rescale": false,
          "do_normalize": false, "image_mean": 0.5})",
      "p.json", {});
  CHECK(cropped.out_width() == 8);
  CHECK(cropped.rescale_factor == 1);
  CHECK((cropped.mean == std::vector<double>{0}));
  CHECK((cropped.std == std::vector<double>{1}));
  // The longer side follows from the shorter one.
  CHECK(contains(error_of([&] {
                   (void)process_image(at::zeros({3, 1, 9000}, at::kByte), cropped, {}, 0);
                 }),
                 "expected a side of 65536 or less"));
  ImageProcessing invalid = cropped;
  invalid.channels = 2;
  CHECK(contains(error_of([&] { invalid.check("here"); }), "here, channels"));
  invalid = cropped;
  invalid.crop_height = -1;
  CHECK(contains(error_of([&] { invalid.check("here"); }), "here, the sizes: got -1"));
}

TEST_CASE("images: a row's random changes follow from seed, epoch and row") {
  if (!can_decode()) return;
  const TemporaryDirectory scratch;
  std::vector<fs::path> files;
  for (int i = 0; i < 6; ++i) {
    files.push_back(scratch.path() / (std::to_string(i) + ".png"));
    write_file_atomically(files.back(), gray_png(30, 20));
  }
  const at::Tensor labels = at::arange(6);
  const ImageProcessing processing{.channels = 1, .height = 10, .width = 8};
  const ImageDataset train(files, labels, processing, {.crop = true, .flip = true});
  const ImageDataset eval(files, labels, processing);
  const at::Tensor first = row_of(train, 3, 0).at("pixel_values");
  CHECK(first.sizes() == at::IntArrayRef({1, 10, 8}));
  CHECK(row_of(train, 3, 0).at("labels").item<std::int64_t>() == 3);
  CHECK(at::equal(first, row_of(train, 3, 0).at("pixel_values")));
  CHECK(!at::equal(first, row_of(train, 3, 1).at("pixel_values")));
  CHECK(!at::equal(first, row_of(train, 4, 0).at("pixel_values")));
  CHECK(at::equal(row_of(eval, 3, 0).at("pixel_values"), row_of(eval, 3, 1).at("pixel_values")));

  // About half of the images are mirrored.
  const ImageDataset mirrored(files, labels, processing, {.flip = true});
  const at::Tensor plain = row_of(eval, 0, 0).at("pixel_values");
  int changed = 0;
  for (std::int64_t epoch = 0; epoch < 200; ++epoch) {
    const at::Tensor row = row_of(mirrored, 0, epoch).at("pixel_values");
    const bool is_mirrored = at::equal(row, plain.flip({2}));
    CHECK(is_mirrored != at::equal(row, plain));
    changed += is_mirrored ? 1 : 0;
  }
  CHECK(changed > 70);
  CHECK(changed < 130);

  // Workers decode the same rows.
  const auto batches = [&](std::int64_t workers) {
    std::vector<at::Tensor> out;
    for (TensorDict& batch :
         make_loader(train, {.batch_size = 4, .shuffle = true, .num_workers = workers}))
      out.push_back(batch.at("pixel_values").clone());
    return at::cat(out);
  };
  CHECK(at::equal(batches(0), batches(2)));

  // A damaged file ends the pass with its name.
  write_file_atomically(files[2], gray_png(30, 20).substr(0, 100));
  CHECK(contains(error_of([&] { (void)batches(2); }), files[2].string()));
  CHECK(contains(error_of([&] { ImageDataset(files, at::arange(5), processing); }), "data.option"));
  files[1] = scratch.path() / "absent.png";
  CHECK(contains(error_of([&] { ImageDataset(files, labels, processing); }), "absent.png"));
}

TEST_CASE("images: a folder has a class for each subfolder") {
  const TemporaryDirectory scratch;
  const auto add = [&](const std::string& name) {
    fs::create_directories((scratch.path() / name).parent_path());
    write_file_atomically(scratch.path() / name, "x");
  };
  CHECK(contains(error_of([&] { (void)list_image_folder(scratch.path()); }), "got no subfolders"));
  for (const char* name : {"dog/2.JPG", "dog/10.png", "cat/deep/1.jpeg", "cat/notes.txt",
                           "readme.md", "cat/.hidden.png", "cat/.trash/2.png", ".cache/1.png"})
    add(name);
  const ImageFiles found = list_image_folder(scratch.path());
  std::vector<std::string> names;
  for (const fs::path& file : found.files)
    names.push_back(fs::relative(file, scratch.path()).string());
  CHECK((names == std::vector<std::string>{"cat/deep/1.jpeg", "dog/10.png", "dog/2.JPG"}));
  CHECK((found.classes == std::vector<std::string>{"cat", "dog", "dog"}));
  add("empty/notes.txt");
  CHECK(contains(error_of([&] { (void)list_image_folder(scratch.path()); }), "no images in empty"));
  CHECK(contains(error_of([&] { (void)list_image_folder(scratch.path() / "absent"); }), "absent"));
}

}  // namespace data_images_test
