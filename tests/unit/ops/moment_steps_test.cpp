// The steps with moments of 8 bits: the nearest code, the same bits with every instruction set, and
// a dry run that allocates nothing.
#include "ops/moment_steps.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <cstring>

#include "hasten/anatomy/dry_run.h"
#include "ops/codebook.h"
#include "unit/ops/adamw_options.h"

namespace ops_moment_steps_test {

using namespace hasten;
using namespace hasten::ops;

namespace {

// The state of one parameter for the kernels.
struct Buffers {
  explicit Buffers(Index count) : parameter(count), gradient(count), codes(count), codes_sq(count) {
    torch::manual_seed(3);
    const at::Tensor values = at::randn({2, count}), sizes = at::randn({count}).mul(4).exp();
    for (Index i = 0; i < count; ++i) {
      parameter[i] = values[0][i].item<float>();
      gradient[i] = values[1][i].item<float>() * sizes[i].item<float>();
    }
    scales.resize(scale_count(count));
    scales_sq.resize(scale_count(count));
  }
  Moment mean() { return {nullptr, codes.data(), scales.data(), &signed_codebook()}; }
  Moment square() { return {nullptr, codes_sq.data(), scales_sq.data(), &unsigned_codebook()}; }

  std::vector<float> parameter, gradient;
  std::vector<std::uint8_t> codes, codes_sq;
  std::vector<float> scales, scales_sq;
};

// Returns the codes of the numbers. With both betas 0, a step of Lion stores the gradients as
// moments.
std::vector<std::uint8_t> codes_of(const Kernels& kernels, std::vector<float> numbers) {
  std::vector<float> parameter(numbers.size());
  std::vector<std::uint8_t> codes(numbers.size());
  std::vector<float> scales(static_cast<std::size_t>(scale_count(numbers.size())));
  kernels.f32_moments.lion(parameter.data(), numbers.data(),
                           {nullptr, codes.data(), scales.data(), &signed_codebook()},
                           {.learning_rate = 0, .beta1 = 0, .beta2 = 0, .weight_decay = 0},
                           static_cast<Index>(numbers.size()));
  return codes;
}

}  // namespace

TEST_CASE("moments: codebooks ascend and have 0 and 1, and the signed one is symmetric but for 1") {
  for (const Codebook* book : {&signed_codebook(), &unsigned_codebook()}) {
    for (int code = 1; code < 256; ++code) REQUIRE(book->value[code - 1] < book->value[code]);
    CHECK(book->value[255] == 1.0f);
  }
  CHECK(unsigned_codebook().value[0] == 0.0f);
  for (int code = 0; code < 127; ++code)
    REQUIRE(signed_codebook().value[code] == -signed_codebook().value[254 - code]);
  CHECK(signed_codebook().value[127] == 0.0f);
}

TEST_CASE("moments: every number gets the nearest code, with every instruction set") {
  const Codebook& book = signed_codebook();
  // The numbers at and next to the limits of all codes, and many numbers between them. Each block
  // starts with a 1.
  std::vector<float> numbers;
  const auto add = [&](float x) {
    if (numbers.size() % kMomentBlock == 0) numbers.push_back(1.0f);
    numbers.push_back(x);
  };
  for (int code = 0; code < 255; ++code) {
    const float end = book.next[code];
    for (const float x : {std::nextafter(end, -2.0f), end, std::nextafter(end, 2.0f)}) add(x);
  }
  for (float x = 1.0f; x > 1e-9f; x *= 0.997f) {
    add(x);
    add(-x);
  }
  add(0.0f);
  add(-0.0f);
  add(std::nextafter(0.0f, 1.0f));
  for (const Kernels* kernels : runnable_kernels()) {
    CAPTURE(kernels->isa);
    const std::vector<std::uint8_t> codes = codes_of(*kernels, numbers);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const auto distance = [&](int code) { return std::fabs(numbers[i] - book.value[code]); };
      const int code = codes[i];
      CAPTURE(numbers[i]);
      if (code > 0) REQUIRE(distance(code) < distance(code - 1));
      if (code < 255) REQUIRE(distance(code) <= distance(code + 1));
    }
  }
}

TEST_CASE("moments: a step has the same bits with every instruction set") {
  constexpr Index kCount = 1000;  // the last block is shorter
  const AdamW options = adamw_options({.gradient_scale = 0.7f});
  const auto run_steps = [&](const Kernels& kernels) {
    Buffers x(kCount);
    for (int step = 0; step < 3; ++step)
      kernels.f32_moments.adamw(x.parameter.data(), x.gradient.data(), x.mean(), x.square(),
                                options, kCount);
    return x;
  };
  const Buffers expected = run_steps(*runnable_kernels().front());
  for (const Kernels* kernels : runnable_kernels()) {
    CAPTURE(kernels->isa);
    const Buffers x = run_steps(*kernels);
    CHECK(std::memcmp(x.parameter.data(), expected.parameter.data(), kCount * sizeof(float)) == 0);
    CHECK(x.codes == expected.codes);
    CHECK(x.codes_sq == expected.codes_sq);
    CHECK(x.scales == expected.scales);
    CHECK(x.scales_sq == expected.scales_sq);
  }
}

TEST_CASE("moments: a block of zeros stays zero, and a missing gradient counts as zeros") {
  for (const Kernels* kernels : runnable_kernels()) {
    CAPTURE(kernels->isa);
    Buffers missing(700), zeros(700);
    std::fill(zeros.gradient.begin(), zeros.gradient.end(), 0.0f);
    // The first block starts with moments that are not zero.
    for (Buffers* each : {&missing, &zeros}) {
      std::fill_n(each->codes.begin(), kMomentBlock, std::uint8_t{200});
      std::fill_n(each->codes_sq.begin(), kMomentBlock, std::uint8_t{100});
      each->scales[0] = each->scales_sq[0] = 0.5f;
    }
    const AdamW options = adamw_options({.gradient_scale = 1});
    kernels->f32_moments.adamw(missing.parameter.data(), nullptr, missing.mean(), missing.square(),
                               options, 700);
    kernels->f32_moments.adamw(zeros.parameter.data(), zeros.gradient.data(), zeros.mean(),
                               zeros.square(), options, 700);
    CHECK(missing.parameter == zeros.parameter);
    CHECK(missing.codes == zeros.codes);
    CHECK(missing.scales == zeros.scales);
    CHECK(missing.scales_sq == zeros.scales_sq);
    CHECK(missing.scales[1] == 0.0f);
    CHECK(missing.codes[300] == 0);
  }
}

}  // namespace ops_moment_steps_test
