// Small images of digits, drawn by the program: nothing is downloaded.
#pragma once

#include <torch/torch.h>

#include <array>
#include <cstdint>

// A row of the dataset, and, stacked, a batch.
struct Digit {
  torch::Tensor image;  // [1, 12, 12], or [rows, 1, 12, 12]
  torch::Tensor label;  // 0 to 9
};

class Digits {
 public:
  Digits(std::int64_t rows, std::uint64_t seed) : rows_(rows), seed_(seed) {}
  std::int64_t size() const { return rows_; }

  // Draws a digit of random brightness at a random place, with noise. A row depends only on its
  // number and on the seed.
  Digit get(std::int64_t index) const {
    torch::Generator random = at::detail::createCPUGenerator(seed_ * 1'000'003 + index);
    const auto below = [&](std::int64_t limit) {
      return torch::randint(limit, {1}, random).item<std::int64_t>();
    };
    const std::int64_t digit = below(10), top = 1 + below(4), left = 2 + below(4);
    torch::Tensor image = 0.2 * torch::randn({1, 12, 12}, random);
    const double ink = 0.6 + 0.1 * static_cast<double>(below(5));
    for (std::int64_t y = 0; y < 7; ++y) {
      for (std::int64_t x = 0; x < 5; ++x) {
        if (kGlyphs[digit][y] >> (4 - x) & 1) image[0][top + y][left + x] += ink;
      }
    }
    return {image, torch::tensor(digit)};
  }

 private:
  // Seven rows of five pixels for each digit.
  static constexpr std::array<std::array<std::uint8_t, 7>, 10> kGlyphs = {{
      {14, 17, 19, 21, 25, 17, 14},
      {4, 12, 4, 4, 4, 4, 14},
      {14, 17, 1, 2, 4, 8, 31},
      {31, 2, 4, 2, 1, 17, 14},
      {2, 6, 10, 18, 31, 2, 2},
      {31, 16, 30, 1, 1, 17, 14},
      {6, 8, 16, 30, 17, 17, 14},
      {31, 1, 2, 4, 8, 8, 8},
      {14, 17, 17, 14, 17, 17, 14},
      {14, 17, 17, 15, 1, 2, 12},
  }};

  std::int64_t rows_;
  std::uint64_t seed_;
};
