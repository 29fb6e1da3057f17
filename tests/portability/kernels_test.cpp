// Tests the CPU kernels without LibTorch, so that a cross compiler can build them for other
// processors: the dropout decisions bit by bit, everything else against doubles.
// HASTEN_CPU_KERNELS chooses the instruction set.
#include "ops/kernels/kernels.h"

#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "../unit/ops/adamw_options.h"

using namespace hasten::ops;

namespace {

// Generates numbers in [-1, 1), the same on every machine.
class Numbers {
 public:
  float next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(state_ >> 40) / 8388608.0f - 1.0f;
  }
  template <class T>
  std::vector<T> many(Index count, float scale = 1.0f) {
    std::vector<T> values(static_cast<std::size_t>(count));
    for (T& value : values) set(value, scale * next());
    return values;
  }

  static void set(float& to, float value) { to = value; }
  static void set(bf16& to, float value) {
    to.bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  }

 private:
  std::uint64_t state_ = 1;
};

double get(float x) { return x; }
double get(bf16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }

template <class T>
const RowKernels<T>& row_kernels();
template <>
const RowKernels<float>& row_kernels<float>() {
  return kernels().f32;
}
template <>
const RowKernels<bf16>& row_kernels<bf16>() {
  return kernels().b16;
}

// The allowed error: half a unit in the last place of the type plus the error of the sums.
template <class T>
constexpr double kError = std::is_same_v<T, float> ? 4e-6 : 5e-3;

template <class T>
void check_near(const std::vector<T>& got, const std::vector<double>& expected, double scale = 1) {
  REQUIRE(got.size() == expected.size());
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(get(got[i]) - expected[i]) / (scale + std::abs(expected[i]));
    if (error > worst || std::isnan(error)) worst = error;  // a NaN stays
  }
  CHECK(worst <= kError<T>);
}

// Philox 4x32-10 as defined by its authors.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> c, std::uint64_t key) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * c[0], b = std::uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(a)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// Returns the factor of element (row, column).
double factor(const Dropout& dropout, std::uint64_t row, Index column) {
  if (dropout.threshold == 0) return 1;
  const Index at = column % 128, counter = at % 64 / 4;
  const auto words =
      philox({static_cast<std::uint32_t>(column / 128 * 16 + counter),
              static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(row >> 32), 0},
             dropout.seed);
  const std::uint32_t word = words[static_cast<std::size_t>(at / 64 * 2 + at % 4 / 2)];
  return (at % 2 ? word >> 16 : word & 0xFFFF) >= dropout.threshold ? dropout.scale : 0;
}

double gelu(double x) { return x / 2 * (1 + std::erf(x / std::sqrt(2.0))); }
double gelu_slope(double x) {
  return (1 + std::erf(x / std::sqrt(2.0))) / 2 +
         x * std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
}

const std::vector<Index> kWidths = {1, 2, 7, 16, 33, 64, 127, 128, 129, 300, 1000};
constexpr Index kRows = 5, kFirstRow = 3;

std::size_t at(Index row, Index column, Index columns) {
  return static_cast<std::size_t>(row * columns + column);
}

std::vector<double> zeros(Index count) {
  return std::vector<double>(static_cast<std::size_t>(count));
}

}  // namespace

TEST_CASE("kernels: HASTEN_CPU_KERNELS chooses the instruction set") {
  const char* requested = std::getenv("HASTEN_CPU_KERNELS");
  MESSAGE("instruction set: ", std::string(kernels().isa));
  if (requested) CHECK(std::string(kernels().isa) == std::string(requested));
  CHECK(std::string(runnable_kernels().front()->isa) == "baseline");
}

TEST_CASE("kernels: dropout uses Philox and is the same on every processor") {
  // These test vectors come from Philox's authors.
  const std::array<std::uint32_t, 4> nothing = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                                     pi = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
  REQUIRE(philox({0, 0, 0, 0}, 0) == nothing);
  REQUIRE(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822u) == pi);
  const Index columns = 1000;
  const std::vector<float> ones(static_cast<std::size_t>(columns), 1.0f);
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{0x299f31d0a4093822u}}) {
    for (const Index first_row : {Index{0}, (Index{1} << 32) - 1, Index{0x13198a2e85a308d3}}) {
      for (const double p : {0.1, 0.5, 0.9}) {
        const Dropout dropout = Dropout::make(p, seed);
        std::vector<float> kept(ones.size());
        kernels().f32.dropout(ones.data(), dropout, first_row, kept.data(), 1, columns);
        Index different = 0;
        for (Index c = 0; c < columns; ++c)
          different +=
              kept[at(0, c, columns)] != factor(dropout, static_cast<std::uint64_t>(first_row), c);
        CHECK(different == 0);
      }
    }
  }
  // The first counter's 128 bits are used as half words in memory order.
  Dropout dropout{.seed = 0, .threshold = 0xe8d5, .scale = 1};
  float kept = 0;
  kernels().f32.dropout(ones.data(), dropout, 0, &kept, 1, 1);
  CHECK(kept == 1);
  dropout.threshold += 1;
  kernels().f32.dropout(ones.data(), dropout, 0, &kept, 1, 1);
  CHECK(kept == 0);
}

TEST_CASE_TEMPLATE("kernels: bias_gelu matches the reference, forward and backward", T, float,
                   bf16) {
  Numbers numbers;
  for (const Index columns : kWidths) {
    CAPTURE(columns);
    const auto x = numbers.many<T>(kRows * columns, 5), dy = numbers.many<T>(kRows * columns);
    const auto bias = numbers.many<float>(columns);
    std::vector<T> y(x.size()), dx(x.size());
    std::vector<float> bias_grad(bias.size());
    row_kernels<T>().bias_gelu(x.data(), bias.data(), y.data(), kRows, columns);
    row_kernels<T>().bias_gelu_backward(dy.data(), x.data(), bias.data(), dx.data(),
                                        bias_grad.data(), kRows, columns);
    std::vector<double> expected_y, expected_dx, expected_bias_grad = zeros(columns);
    for (Index r = 0; r < kRows; ++r) {
      for (Index c = 0; c < columns; ++c) {
        const double in = get(x[at(r, c, columns)]) + bias[at(0, c, columns)];
        expected_y.push_back(gelu(in));
        expected_dx.push_back(get(dy[at(r, c, columns)]) * gelu_slope(in));
        expected_bias_grad[at(0, c, columns)] += expected_dx.back();
      }
    }
    check_near(y, expected_y);
    check_near(dx, expected_dx);
    check_near(bias_grad, expected_bias_grad);
  }
}

TEST_CASE_TEMPLATE("kernels: dropout_add_norm matches the reference, forward and backward", T,
                   float, bf16) {
  Numbers numbers;
  const float epsilon = 1e-5f;
  for (const double p : {0.0, 0.25}) {
    const Dropout dropout = Dropout::make(p, 42);
    for (const Index columns : kWidths) {
      CAPTURE(columns);
      const auto x = numbers.many<T>(kRows * columns), residual = numbers.many<T>(kRows * columns);
      const auto bias = numbers.many<float>(columns), gamma = numbers.many<float>(columns),
                 beta = numbers.many<float>(columns);
      std::vector<T> z(x.size()), y(x.size());
      std::vector<float> mean(kRows), rstd(kRows);
      row_kernels<T>().dropout_add_norm(x.data(), bias.data(), residual.data(), gamma.data(),
                                        beta.data(), epsilon, dropout, kFirstRow, z.data(),
                                        y.data(), mean.data(), rstd.data(), kRows, columns);
      std::vector<double> expected_z, expected_y;
      for (Index r = 0; r < kRows; ++r) {
        double sum = 0, squares = 0;
        for (Index c = 0; c < columns; ++c) {
          const std::size_t i = at(r, c, columns);
          expected_z.push_back((get(x[i]) + bias[at(0, c, columns)]) *
                                   factor(dropout, kFirstRow + r, c) +
                               get(residual[i]));
          sum += get(z[i]);
        }
        const double m = sum / static_cast<double>(columns);
        for (Index c = 0; c < columns; ++c)
          squares += (get(z[at(r, c, columns)]) - m) * (get(z[at(r, c, columns)]) - m);
        const double inverse = 1 / std::sqrt(squares / static_cast<double>(columns) + epsilon);
        for (Index c = 0; c < columns; ++c)
          expected_y.push_back((get(z[at(r, c, columns)]) - m) * inverse *
                                   gamma[at(0, c, columns)] +
                               beta[at(0, c, columns)]);
      }
      check_near(z, expected_z);
      // A row is divided by its deviation, which can be small if the row has one or two elements.
      check_near(y, expected_y, columns <= 2 ? 10 : 1);

      const auto dy = numbers.many<T>(kRows * columns);
      std::vector<T> dz(x.size()), dx(x.size());
      std::vector<float> bias_grad(bias.size()), gamma_grad(bias.size()), beta_grad(bias.size());
      row_kernels<T>().dropout_add_norm_backward(dy.data(), z.data(), mean.data(), rstd.data(),
                                                 gamma.data(), dropout, kFirstRow, dz.data(),
                                                 dx.data(), bias_grad.data(), gamma_grad.data(),
                                                 beta_grad.data(), kRows, columns);
      std::vector<double> expected_dz, expected_dx, expected_gamma = zeros(columns),
                                                    expected_beta = zeros(columns);
      for (std::size_t r = 0; r < kRows; ++r) {
        const auto row = static_cast<Index>(r);
        const auto normal = [&](Index c) {
          return (get(z[at(row, c, columns)]) - mean[r]) * rstd[r];
        };
        const auto slope = [&](Index c) {
          return get(dy[at(row, c, columns)]) * gamma[at(0, c, columns)];
        };
        double sum = 0, dot = 0;
        for (Index c = 0; c < columns; ++c) {
          sum += slope(c);
          dot += slope(c) * normal(c);
          expected_gamma[at(0, c, columns)] += get(dy[at(row, c, columns)]) * normal(c);
          expected_beta[at(0, c, columns)] += get(dy[at(row, c, columns)]);
        }
        for (Index c = 0; c < columns; ++c) {
          expected_dz.push_back(
              (slope(c) - (sum + normal(c) * dot) / static_cast<double>(columns)) * rstd[r]);
          expected_dx.push_back(expected_dz.back() * factor(dropout, kFirstRow + row, c));
        }
      }
      const double scale = columns <= 2 ? 1000 : 1;
      check_near(dz, expected_dz, scale);
      check_near(dx, expected_dx, scale);
      check_near(gamma_grad, expected_gamma);
      check_near(beta_grad, expected_beta);
    }
  }
}

TEST_CASE_TEMPLATE("kernels: softmax with a mask and dropout, forward and backward", T, float,
                   bf16) {
  Numbers numbers;
  const float scale = 0.125f;
  for (const double p : {0.0, 0.25}) {
    const Dropout dropout = Dropout::make(p, 7);
    for (const Index columns : kWidths) {
      CAPTURE(columns);
      const auto scores = numbers.many<T>(kRows * columns, 40);
      std::vector<float> mask(static_cast<std::size_t>(columns));
      for (std::size_t c = 1; c < mask.size(); c += 3) mask[c] = -INFINITY;
      std::vector<T> dropped = scores;
      std::vector<float> log_sum(kRows);
      row_kernels<T>().softmax_dropout(dropped.data(), mask.data(), scale, dropout, kFirstRow,
                                       log_sum.data(), kRows, columns);
      std::vector<double> share, expected;
      for (Index r = 0; r < kRows; ++r) {
        double total = 0;
        const auto term = [&](Index c) {
          return std::exp(scale * get(scores[at(r, c, columns)]) + mask[at(0, c, columns)]);
        };
        for (Index c = 0; c < columns; ++c) total += term(c);
        CHECK(log_sum[static_cast<std::size_t>(r)] ==
              doctest::Approx(std::log(total)).epsilon(1e-5));
        for (Index c = 0; c < columns; ++c) {
          share.push_back(term(c) / total);
          expected.push_back(share.back() * factor(dropout, kFirstRow + r, c));
        }
      }
      check_near(dropped, expected);

      const auto dropped_grad = numbers.many<T>(kRows * columns);
      const auto delta = numbers.many<float>(kRows);
      std::vector<T> again = scores, grad = dropped_grad;
      row_kernels<T>().softmax_dropout_backward(again.data(), grad.data(), mask.data(), scale,
                                                dropout, kFirstRow, log_sum.data(), delta.data(),
                                                kRows, columns);
      check_near(again, expected);
      std::vector<double> expected_grad;
      for (Index r = 0; r < kRows; ++r) {
        for (Index c = 0; c < columns; ++c) {
          const std::size_t i = at(r, c, columns);
          expected_grad.push_back(share[i] *
                                  (get(dropped_grad[i]) * factor(dropout, kFirstRow + r, c) -
                                   delta[static_cast<std::size_t>(r)]) *
                                  scale);
        }
      }
      check_near(grad, expected_grad);
    }
  }
}

TEST_CASE_TEMPLATE("kernels: row_dot and column_sum match the reference", T, float, bf16) {
  Numbers numbers;
  for (const Index columns : kWidths) {
    CAPTURE(columns);
    const Index stride = columns + 3;
    const auto a = numbers.many<T>(kRows * stride), b = numbers.many<T>(kRows * stride);
    std::vector<float> dots(kRows), sums(static_cast<std::size_t>(stride), 1.0f);
    row_kernels<T>().row_dot(a.data(), b.data(), dots.data(), kRows, columns, stride);
    row_kernels<T>().column_sum(a.data(), sums.data(), kRows, stride);
    std::vector<double> expected_dots = zeros(kRows), expected_sums(sums.size(), 1.0);
    for (Index r = 0; r < kRows; ++r) {
      for (Index c = 0; c < stride; ++c) {
        const std::size_t i = at(r, c, stride);
        if (c < columns) expected_dots[static_cast<std::size_t>(r)] += get(a[i]) * get(b[i]);
        expected_sums[at(0, c, stride)] += get(a[i]);
      }
    }
    check_near(dots, expected_dots);
    check_near(sums, expected_sums);
  }
}

TEST_CASE("kernels: sum_of_squares and adamw match the reference") {
  Numbers numbers;
  for (const Index count : {Index{0}, Index{1}, Index{15}, Index{4097}}) {
    CAPTURE(count);
    const auto gradient = numbers.many<float>(count);
    double expected = 0;
    for (const float g : gradient) expected += double{g} * g;
    CHECK(kernels().sum_of_squares(gradient.data(), count) ==
          doctest::Approx(expected).epsilon(1e-6));
    const AdamW options = adamw_options({.step = 2, .gradient_scale = 0.5f});
    for (const bool has_gradient : {true, false}) {
      auto parameter = numbers.many<float>(count), m = numbers.many<float>(count),
           v = numbers.many<float>(count);
      for (float& square : v) square = square * square + 0.1f;
      std::vector<double> expected_parameter, expected_m, expected_v;
      for (std::size_t i = 0; i < parameter.size(); ++i) {
        const double g = has_gradient ? 0.5 * gradient[i] : 0;
        expected_m.push_back(0.9 * m[i] + 0.1 * g);
        expected_v.push_back(0.999 * v[i] + 0.001 * g * g);
        expected_parameter.push_back(parameter[i] * (1 - 0.01 * 0.1) -
                                     0.01 / 0.19 * expected_m[i] /
                                         (std::sqrt(expected_v[i] / 0.001999) + 1e-8));
      }
      kernels().adamw(parameter.data(), has_gradient ? gradient.data() : nullptr, m.data(),
                      v.data(), options, count);
      check_near(parameter, expected_parameter);
      check_near(m, expected_m);
      check_near(v, expected_v);
    }
  }
}
