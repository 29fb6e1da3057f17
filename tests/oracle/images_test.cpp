// Compares image classification with the Hugging Face Trainer, from the files to the final weights,
// and decoding and resizing with Pillow and PyTorch (tests/oracle/generate_images.py).
#include "hasten/data/images.h"

#include "hasten/base/error.h"
#include "hasten/formats/safetensors.h"
#include "hasten/trainer/task_data.h"
#include "images/digits.h"
#include "oracle/task_run.h"
#include "skip.h"

namespace oracle_images_test {

using namespace hasten;
using namespace hasten::oracle;

namespace {

bool can_decode() {
  try {
    (void)decode_image(images::png("\1", {}), "probe");
    return true;
  } catch (const ConfigError&) {
    skip_test("libpng or libjpeg-turbo is missing (Debian: libpng-dev, libjpeg62-turbo-dev)");
    return false;
  }
}

// Writes images to files, trains on them, and compares the run with the Hugging Face Trainer's.
void check_digits(const std::string& name, const RunComparison& comparison = {}) {
  if (!can_decode()) return;
  const TemporaryDirectory scratch;
  const auto digits = images::read_digits(kData / "tasks/digits.tsv", 187);
  const TrainOptions options{
      .model = (kData / "tasks" / name).string(),
      .task = TrainTask::image_classification,
      .data = images::write_digit_table(digits, 0, 160, scratch.path() / "train"),
      .eval_data = images::write_digit_table(digits, 160, 187, scratch.path() / "eval")};
  (void)check_run(options, comparison);
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

}  // namespace

TEST_CASE("images: a vision transformer equals the Hugging Face Trainer's") { check_digits("vit"); }

TEST_CASE("images: a ResNet of bottleneck layers equals the Hugging Face Trainer's") {
  check_digits("resnet");
}

TEST_CASE("images: a ResNet of basic layers equals the Hugging Face Trainer's") {
  // On a CPU without AVX-512 a convolution rounds differently. After nine steps an input of a
  // rectifier has the opposite sign, which adds or removes its gradient.
  check_digits("resnet_basic", {.exact_entries = 8});
}

TEST_CASE("images: the pixels of each kind of file are those that Pillow reads") {
  if (!can_decode()) return;
  const TensorDict expected = load_safetensors(kData / "images/expected.safetensors");
  int compared = 0;
  for (const auto& [name, pixels] : expected) {
    const std::size_t dot = name.rfind('.');
    const std::string kind = name.substr(dot + 1), file = name.substr(0, dot);
    if (kind != "rgb" && kind != "gray") continue;
    CAPTURE(name);
    const at::Tensor read =
        read_image(kData / "images" / file, {.channels = kind == "rgb" ? 3 : 1});
    // Versions of libjpeg-turbo differ by 1 when they upsample the colours of 4:2:0.
    CHECK(largest_difference(read, pixels) <= (file.ends_with(".png") ? 0 : 1));
    ++compared;
  }
  CHECK(compared == 18);
  CHECK_THROWS_AS((void)read_image(kData / "images/cmyk.jpg"), DataError);
}

TEST_CASE("images: resizing equals PyTorch's and, within 1, Pillow's") {
  if (!can_decode()) return;
  const TensorDict expected = load_safetensors(kData / "images/expected.safetensors");
  const at::Tensor image = read_image(kData / "images/rgb.png");
  int compared = 0;
  for (const auto& [name, pixels] : expected) {
    if (name.find("bi") != 0 || name.find(".png") != std::string::npos) continue;
    CAPTURE(name);
    const at::Tensor resized =
        resize_image(image, pixels.size(1), pixels.size(2), name.find("bicubic") == 0);
    // LibTorch uses AVX2 if the CPU has it, which may round differently.
    CHECK(largest_difference(resized, pixels) <= 1);
    ++compared;
  }
  CHECK(compared == 12);
}

}  // namespace oracle_images_test
