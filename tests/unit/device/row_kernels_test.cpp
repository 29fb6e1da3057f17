// Compares the GPU kernels, which the grid emulator runs on the host, with the operators of the
// CPU.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "device/cuda/kernels/row_calls.h"
#include "hasten/ops/ops.h"
#include "ops/dropout_state.h"
#include "ops/random.h"
#include "unit/device/grid_emulator.h"

namespace device_row_kernels_test {

using namespace hasten;
using namespace hasten::gpu;
using at::Tensor;

namespace {

constexpr auto emulated = [](const auto& kernel, const Grid& grid) { emulate(kernel, grid); };

struct Case {
  NumberType type;
  Index rows, columns;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const NumberType type : {NumberType::f32, NumberType::bf16, NumberType::fp16}) {
    // The widths need one warp or several, with and without full packs. The widest rows need most
    // registers of a thread. The numbers of rows are below and above the number of parts of a sum.
    for (const auto& [rows, columns] : std::vector<std::pair<Index, Index>>{{1, 1},
                                                                            {5, 12},
                                                                            {3, 31},
                                                                            {2, 128},
                                                                            {7, 300},
                                                                            {9, 256},
                                                                            {5, 768},
                                                                            {2, 1030},
                                                                            {3, 2052},
                                                                            {70, 36},
                                                                            {2, 4168},
                                                                            {1, 4099}})
      all.push_back({type, rows, columns});
  }
  return all;
}

at::ScalarType scalar_type(NumberType type) {
  if (type == NumberType::f32) return at::kFloat;
  return type == NumberType::bf16 ? at::kBFloat16 : at::kHalf;
}

// The rounding error of a stored number of the type, relative to its size.
double rounding(NumberType type) {
  if (type == NumberType::f32) return 2e-6;
  return type == NumberType::bf16 ? 1.0 / 128 : 1.0 / 1024;
}

// Returns random numbers of the type.
Tensor numbers(const Case& c) { return at::randn({c.rows, c.columns}).to(scalar_type(c.type)); }
Tensor vector(const Case& c) { return at::randn({c.columns}); }

// Checks that each number is within `roundings` rounding errors of the type.
void check_near(const Tensor& got, const Tensor& expected, const Case& c, double roundings = 2) {
  REQUIRE(got.sizes() == expected.sizes());
  const Tensor a = got.to(at::kDouble), b = expected.to(at::kDouble);
  const double limit = roundings * rounding(c.type);
  const double worst = ((a - b).abs() / (1 + b.abs())).max().item<double>();
  CHECK(worst <= limit);
}

DropoutDecisions decisions_of(const ops::DropoutState& state) {
  const ops::Dropout dropout = state.kernel_options();
  return {.seed = dropout.seed, .threshold = dropout.threshold, .scale = dropout.scale};
}

// Runs an operator on the CPU, and sets `decisions` to the decisions of its dropout.
Tensor with_decisions(double p, DropoutDecisions& decisions, const std::function<Tensor()>& run) {
  torch::manual_seed(11);
  decisions = decisions_of(ops::draw_dropout(p, /*training=*/true));
  torch::manual_seed(11);
  return run();
}

void capture(const Case& c, const std::function<void()>& run) {
  CAPTURE(static_cast<int>(c.type));
  CAPTURE(c.rows);
  CAPTURE(c.columns);
  run();
}

// Checks the kernels of a GELU with a bias against a function that computes the same in float.
template <class Call, class BackwardCall>
void check_gelu(const Case& c, const std::function<Tensor(const Tensor&, const Tensor&)>& gelu) {
  const Tensor x = numbers(c), bias = vector(c), dy = numbers(c);
  const Tensor y = at::empty_like(x);
  start(Call{BiasGeluCall<>{.x = x.const_data_ptr(),
                            .bias = bias.const_data_ptr<float>(),
                            .y = y.mutable_data_ptr(),
                            .rows = c.rows,
                            .columns = c.columns}},
        c.type, emulated);
  const Tensor in = x.to(at::kFloat).requires_grad_(), b = bias.clone().requires_grad_();
  const Tensor expected = gelu(in, b);
  check_near(y, expected.detach(), c);

  const auto gradients = torch::autograd::grad({expected}, {in, b}, {dy.to(at::kFloat)});
  for (const Index parts : {1, 3}) {
    const Tensor dx = at::empty_like(x), sums = at::full({parts, c.columns}, 7.0f);
    start(BackwardCall{BiasGeluBackwardCall<>{.dy = dy.const_data_ptr(),
                                              .x = x.const_data_ptr(),
                                              .bias = bias.const_data_ptr<float>(),
                                              .dx = dx.mutable_data_ptr(),
                                              .sums = sums.mutable_data_ptr<float>(),
                                              .parts = parts,
                                              .rows = c.rows,
                                              .columns = c.columns}},
          c.type, emulated);
    check_near(dx, gradients[0], c);
    check_near(sums.sum(0), gradients[1], c, 8);
  }
}

constexpr Index kIgnored = -100;

// Checks the losses and the gradient of rows. The last row has an ignored label.
void check_cross_entropy(const Case& c, Index padding, double smoothing) {
  Tensor logits = at::full({c.rows, c.columns + padding}, 30.0f).to(scalar_type(c.type));
  logits.narrow(1, 0, c.columns).copy_(at::randn({c.rows, c.columns}).mul_(3));
  const Tensor labels = at::randint(c.columns, {c.rows}, at::kLong);
  labels[c.rows - 1] = kIgnored;
  const Tensor in = logits.narrow(1, 0, c.columns).to(at::kFloat).clone().requires_grad_();
  const Tensor expected =
      at::cross_entropy_loss(in, labels, {}, at::Reduction::None, kIgnored, smoothing);
  const Tensor gradient = torch::autograd::grad({expected.sum()}, {in})[0];
  const Tensor losses = at::full({c.rows}, 7.0f);
  for (const bool differentiates : {false, true}) {
    start(CrossEntropyCall<>{.logits = logits.mutable_data_ptr(),
                             .labels = labels.const_data_ptr<Index>(),
                             .losses = losses.mutable_data_ptr<float>(),
                             .ignored = kIgnored,
                             .smoothing = static_cast<float>(smoothing),
                             .differentiates = differentiates,
                             .rows = c.rows,
                             .columns = c.columns,
                             .stride = c.columns + padding},
          c.type, emulated);
    CHECK(at::allclose(losses, expected.detach(), 1e-5, 1e-5));
  }
  check_near(logits.narrow(1, 0, c.columns), gradient, c, 1);
  CHECK_FALSE(logits.narrow(1, c.columns, padding).any().item<bool>());
}

// Returns the losses of float rows with labels 0.
Tensor losses_of(const Tensor& logits) {
  const Tensor labels = at::zeros({logits.size(0)}, at::kLong),
               losses = at::zeros({logits.size(0)});
  start(CrossEntropyCall<>{.logits = logits.mutable_data_ptr(),
                           .labels = labels.const_data_ptr<Index>(),
                           .losses = losses.mutable_data_ptr<float>(),
                           .ignored = kIgnored,
                           .smoothing = 0,
                           .differentiates = false,
                           .rows = logits.size(0),
                           .columns = logits.size(1),
                           .stride = logits.size(1)},
        NumberType::f32, emulated);
  return losses;
}

}  // namespace

TEST_CASE("row kernels: bias_gelu and its backward pass equal the CPU's") {
  torch::manual_seed(1);
  for (const Case& c : cases())
    capture(c, [&] {
      check_gelu<BiasGeluCall<>, BiasGeluBackwardCall<>>(
          c, [](const Tensor& x, const Tensor& bias) { return ops::bias_gelu(x, bias); });
    });
}

TEST_CASE("row kernels: bias_tanh_gelu and its backward pass equal LibTorch's") {
  torch::manual_seed(1);
  for (const Case& c : cases())
    capture(c, [&] {
      check_gelu<BiasTanhGeluCall, BiasTanhGeluBackwardCall>(
          c, [](const Tensor& x, const Tensor& bias) { return at::gelu(x + bias, "tanh"); });
    });
}

TEST_CASE("row kernels: bias_tanh_gelu is 0 or its argument far from 0, and NaN for NaN") {
  const Tensor x = at::tensor({-1e4f, -30.0f, 30.0f, 1e4f}), bias = at::zeros({4}),
               y = at::empty_like(x);
  const auto run = [&] {
    start(BiasTanhGeluCall{{.x = x.const_data_ptr(),
                            .bias = bias.const_data_ptr<float>(),
                            .y = y.mutable_data_ptr(),
                            .rows = 1,
                            .columns = 4}},
          NumberType::f32, emulated);
  };
  run();
  CHECK(at::equal(y, at::tensor({0.0f, 0.0f, 30.0f, 1e4f})));
  x.fill_(std::numeric_limits<float>::quiet_NaN());
  run();
  CHECK(y.isnan().all().item<bool>());
}

TEST_CASE("row kernels: the sums of columns equal LibTorch's, and do not overflow in 16 bits") {
  torch::manual_seed(2);
  for (const Case& c : cases()) {
    capture(c, [&] {
      const Tensor x = numbers(c).mul_(1000);
      for (const Index parts : {1, 3}) {
        const Tensor sums = at::full({parts, c.columns}, 7.0f);
        start(ColumnSumCall<>{.x = x.const_data_ptr(),
                              .sums = sums.mutable_data_ptr<float>(),
                              .parts = parts,
                              .rows = c.rows,
                              .columns = c.columns},
              c.type, emulated);
        CHECK(at::allclose(sums.sum(0), x.to(at::kDouble).sum(0).to(at::kFloat), 1e-5, 1e-2));
      }
    });
  }
}

TEST_CASE("row kernels: the cross entropy and its gradient equal LibTorch's, also with padding") {
  torch::manual_seed(3);
  for (const Case& c : cases()) {
    capture(c, [&] {
      for (const Index padding : {0, 4}) {
        for (const double smoothing : {0.0, 0.1}) check_cross_entropy(c, padding, smoothing);
      }
    });
  }
}

// The rows have more columns than a block reads before it uses the first.
TEST_CASE("row kernels: the cross entropy of wide rows equals LibTorch's") {
  torch::manual_seed(4);
  for (const Case& c : {Case{NumberType::f32, 3, 20000}, Case{NumberType::bf16, 3, 50252},
                        Case{NumberType::fp16, 2, 33000}, Case{NumberType::bf16, 2, 8195}}) {
    capture(c, [&] {
      for (const Index padding : {0, 4}) check_cross_entropy(c, padding, 0.1);
    });
  }
}

TEST_CASE("row kernels: the cross entropy of extreme numbers is exact, and of NaN is NaN") {
  const float infinity = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  Tensor far = at::full({1, 20000}, -1000.0f);
  far[0][0] = 1000.0f;
  far[0][19999] = 1000.0f;
  CHECK(losses_of(far).item<float>() == doctest::Approx(std::log(2.0)));
  Tensor masked = at::full({1, 20000}, -infinity);
  masked[0][0] = 5.0f;
  CHECK(losses_of(masked).item<float>() == 0.0f);
  for (const Index at : {0, 777, 19999}) {
    Tensor one = at::zeros({1, 20000});
    one[0][at] = nan;
    CHECK(std::isnan(losses_of(one).item<float>()));
  }
  CHECK(std::isnan(losses_of(at::full({1, 20000}, nan)).item<float>()));
}

TEST_CASE("row kernels: a label that is not a class is refused") {
  const Tensor logits = at::zeros({1, 8}), labels = at::full({1}, 8, at::kLong),
               losses = at::zeros({1});
  CHECK_THROWS(start(CrossEntropyCall<>{.logits = logits.mutable_data_ptr(),
                                        .labels = labels.const_data_ptr<Index>(),
                                        .losses = losses.mutable_data_ptr<float>(),
                                        .ignored = -100,
                                        .smoothing = 0,
                                        .differentiates = true,
                                        .rows = 1,
                                        .columns = 8,
                                        .stride = 8},
                     NumberType::f32, emulated));
}

TEST_CASE("row kernels: dropout drops the same elements as the CPU's") {
  for (const Case& c : cases()) {
    capture(c, [&] {
      for (const double p : {0.0, 0.1, 0.5, 1.0}) {
        const Tensor x = numbers(c), y = at::empty_like(x);
        DropoutDecisions decisions;
        const Tensor expected = with_decisions(
            p, decisions, [&] { return ops::dropout(x.to(at::kFloat), p, /*training=*/true); });
        start(DropoutCall<>{.x = x.const_data_ptr(),
                            .decisions = decisions,
                            .y = y.mutable_data_ptr(),
                            .rows = c.rows,
                            .columns = c.columns},
              c.type, emulated);
        CHECK(at::equal(y.ne(0), expected.ne(0)));
        check_near(y, expected, c, 1);
      }
    });
  }
}

TEST_CASE("row kernels: dropout drops the same elements as the CPU's for 64-bit seeds") {
  const Case c{NumberType::f32, 3, 260};
  const Tensor x = at::ones({c.rows, c.columns});
  for (const std::uint64_t seed : {std::uint64_t{1}, std::uint64_t{0xFEDCBA9876543210}}) {
    const ops::DropoutState state{static_cast<std::int64_t>(seed), 0.3};
    const Tensor y = at::empty_like(x);
    start(DropoutCall<>{.x = x.const_data_ptr(),
                        .decisions = decisions_of(state),
                        .y = y.mutable_data_ptr(),
                        .rows = c.rows,
                        .columns = c.columns},
          c.type, emulated);
    CHECK(at::equal(y, ops::apply_dropout(x, state)));
    // A kernel in a CUDA graph reads the seed at its address.
    DropoutDecisions read = decisions_of({.seed = 99, .p = 0.3});
    read.seed_at = &seed;
    y.zero_();
    start(DropoutCall<>{.x = x.const_data_ptr(),
                        .decisions = read,
                        .y = y.mutable_data_ptr(),
                        .rows = c.rows,
                        .columns = c.columns},
          c.type, emulated);
    CHECK(at::equal(y, ops::apply_dropout(x, state)));
  }
}

TEST_CASE("row kernels: dropout_add_norm and its backward pass equal the CPU's") {
  torch::manual_seed(2);
  for (const Case& c : cases()) {
    capture(c, [&] {
      const Tensor x = numbers(c), residual = numbers(c), dy = numbers(c), bias = vector(c),
                   gamma = vector(c), beta = vector(c);
      const Tensor in = x.to(at::kFloat).requires_grad_(),
                   r = residual.to(at::kFloat).requires_grad_(), b = bias.clone().requires_grad_(),
                   g = gamma.clone().requires_grad_(), s = beta.clone().requires_grad_();
      constexpr double kEpsilon = 1e-5, kP = 0.2;
      DropoutDecisions decisions;
      const Tensor expected = with_decisions(kP, decisions, [&] {
        return ops::dropout_add_norm(in, b, r, g, s, kEpsilon, kP, /*training=*/true);
      });
      const Tensor z = at::empty_like(x), y = at::empty_like(x), moments = at::empty({2, c.rows});
      float* const mean = moments.mutable_data_ptr<float>();
      start(DropoutAddNormCall<>{.x = x.const_data_ptr(),
                                 .bias = bias.const_data_ptr<float>(),
                                 .residual = residual.const_data_ptr(),
                                 .gamma = gamma.const_data_ptr<float>(),
                                 .beta = beta.const_data_ptr<float>(),
                                 .epsilon = kEpsilon,
                                 .decisions = decisions,
                                 .z = z.mutable_data_ptr(),
                                 .y = y.mutable_data_ptr(),
                                 .mean = mean,
                                 .rstd = mean + c.rows,
                                 .rows = c.rows,
                                 .columns = c.columns},
            c.type, emulated);
      // A row of one number has no deviation, so its normalized value is only the rounding error of
      // z.
      if (c.columns == 1) return;
      check_near(y, expected.detach(), c, 8);

      const Index parts = 2;
      const Tensor dz = at::empty_like(x), dx = at::empty_like(x),
                   sums = at::full({parts, 3 * c.columns}, 7.0f);
      start(DropoutAddNormBackwardCall<>{.dy = dy.const_data_ptr(),
                                         .z = z.const_data_ptr(),
                                         .mean = mean,
                                         .rstd = mean + c.rows,
                                         .gamma = gamma.const_data_ptr<float>(),
                                         .decisions = decisions,
                                         .dz = dz.mutable_data_ptr(),
                                         .dx = dx.mutable_data_ptr(),
                                         .sums = sums.mutable_data_ptr<float>(),
                                         .parts = parts,
                                         .rows = c.rows,
                                         .columns = c.columns},
            c.type, emulated);
      const auto gradients =
          torch::autograd::grad({expected}, {in, r, b, g, s}, {dy.to(at::kFloat)});
      check_near(dx, gradients[0], c, 8);
      check_near(dz, gradients[1], c, 8);
      const Tensor by_kind = sums.sum(0).view({3, c.columns});
      for (int kind = 0; kind < 3; ++kind)
        check_near(by_kind[kind], gradients[static_cast<std::size_t>(kind) + 2], c, 16);
    });
  }
}

TEST_CASE("row kernels: a nearly constant row keeps its small differences") {
  const Case c{NumberType::f32, 1, 512};
  const Tensor x = at::full({1, 512}, 1000.0f) + at::randn({1, 512}) * 0.01,
               zeros = at::zeros({1, 512}), none = at::zeros({512}), ones = at::ones({512});
  const Tensor z = at::empty_like(x), y = at::empty_like(x), moments = at::empty({2, 1});
  start(DropoutAddNormCall<>{.x = x.const_data_ptr(),
                             .bias = none.const_data_ptr<float>(),
                             .residual = zeros.const_data_ptr(),
                             .gamma = ones.const_data_ptr<float>(),
                             .beta = none.const_data_ptr<float>(),
                             .epsilon = 1e-12f,
                             .decisions = {},
                             .z = z.mutable_data_ptr(),
                             .y = y.mutable_data_ptr(),
                             .mean = moments.mutable_data_ptr<float>(),
                             .rstd = moments.mutable_data_ptr<float>() + 1,
                             .rows = 1,
                             .columns = 512},
        c.type, emulated);
  const Tensor exact = x.to(at::kDouble), centred = exact - exact.mean();
  const Tensor expected = centred / centred.square().mean().sqrt();
  CHECK((y - expected).abs().max().item<double>() < 1e-3);
}

TEST_CASE("row kernels: embedding_sum equals the CPU's, and a wrong id is refused") {
  torch::manual_seed(3);
  for (const Index columns : {1, 40, 300}) {
    const Tensor word = at::randn({11, columns}), position = at::randn({6, columns}),
                 type = at::randn({2, columns});
    const Tensor ids = at::randint(11, {3, 5}, at::kLong),
                 types = at::randint(2, {3, 5}, at::kLong);
    const Tensor out = at::empty({3, 5, columns});
    EmbeddingSumKernel kernel{
        .word = {word.const_data_ptr<float>(), ids.const_data_ptr<std::int64_t>(), 11},
        .position = {position.const_data_ptr<float>(), nullptr, 6},
        .type = {type.const_data_ptr<float>(), types.const_data_ptr<std::int64_t>(), 2},
        .out = out.mutable_data_ptr<float>(),
        .rows = 15,
        .length = 5,
        .columns = columns};
    start(kernel, emulated);
    CHECK(at::equal(out, ops::embedding_sum(word, position, type, ids, {}, types, -1, false)));
    kernel.position = kernel.type = {};
    start(kernel, emulated);
    CHECK(at::equal(out, at::embedding(word, ids)));
    kernel.word.size = ids.max().item<std::int64_t>();
    CHECK_THROWS_AS(start(kernel, emulated), std::out_of_range);
  }
}

TEST_CASE("row kernels: a call without elements starts nothing") {
  const auto never = [](const auto&, const Grid&) { FAIL("a kernel was started"); };
  for (const auto& [rows, columns] : {std::pair<Index, Index>{0, 8}, {8, 0}}) {
    start(
        BiasGeluCall<>{
            .x = nullptr, .bias = nullptr, .y = nullptr, .rows = rows, .columns = columns},
        NumberType::f32, never);
    start(
        DropoutCall<>{
            .x = nullptr, .decisions = {}, .y = nullptr, .rows = rows, .columns = columns},
        NumberType::f32, never);
  }
}

TEST_CASE("row kernels: sums over no rows are zeros") {
  constexpr Index kColumns = 300;
  const Tensor ones = at::ones({kColumns});
  const auto check_zeros = [&](Index width, const auto& start_call) {
    for (const NumberType type : {NumberType::f32, NumberType::bf16}) {
      const Tensor sums = at::full({1, width}, 7.0f);
      start_call(sums.mutable_data_ptr<float>(), type);
      CHECK(at::equal(sums, at::zeros_like(sums)));
    }
  };
  const auto gelu = [&](float* sums) {
    return BiasGeluBackwardCall<>{.dy = nullptr,
                                  .x = nullptr,
                                  .bias = ones.const_data_ptr<float>(),
                                  .dx = nullptr,
                                  .sums = sums,
                                  .parts = 1,
                                  .rows = 0,
                                  .columns = kColumns};
  };
  const auto norm = [&](float* sums) {
    return DropoutAddNormBackwardCall<>{.dy = nullptr,
                                        .z = nullptr,
                                        .mean = nullptr,
                                        .rstd = nullptr,
                                        .gamma = ones.const_data_ptr<float>(),
                                        .decisions = {},
                                        .dz = nullptr,
                                        .dx = nullptr,
                                        .sums = sums,
                                        .parts = 1,
                                        .rows = 0,
                                        .columns = kColumns};
  };
  check_zeros(kColumns, [&](float* sums, NumberType type) { start(gelu(sums), type, emulated); });
  check_zeros(kColumns, [&](float* sums, NumberType type) {
    start(BiasTanhGeluBackwardCall{gelu(sums)}, type, emulated);
  });
  check_zeros(kColumns, [&](float* sums, NumberType type) {
    start(ColumnSumCall<>{.x = nullptr, .sums = sums, .parts = 1, .rows = 0, .columns = kColumns},
          type, emulated);
  });
  check_zeros(3 * kColumns,
              [&](float* sums, NumberType type) { start(norm(sums), type, emulated); });
  check_zeros(3 * kColumns, [&](float* sums, NumberType type) {
    start(DropoutAddPreNormBackwardCall{norm(sums)}, type, emulated);
  });
}

// On a GPU, a block has whole warps and at most 1024 threads, and a grid has fewer than 2^31
// blocks.
TEST_CASE("row kernels: grids are within a GPU's limits") {
  const auto check = [](const auto&, const Grid& grid) {
    CHECK(grid.blocks > 0);
    CHECK(grid.blocks < (Index{1} << 31));
    CHECK(grid.threads % 32 == 0);
    CHECK(grid.threads > 0);
    CHECK(grid.threads <= kMaxThreads);
  };
  for (const Index rows : {Index{1}, Index{1} << 33}) {
    for (const Index columns : {1, 3, 768, 1 << 20}) {
      start(
          DropoutCall<>{
              .x = nullptr, .decisions = {}, .y = nullptr, .rows = rows, .columns = columns},
          NumberType::bf16, check);
    }
  }
}

TEST_CASE("row kernels: numbers of 16 bits round as LibTorch's do") {
  const Tensor values = at::cat({at::randn({1000}) * 100, at::randn({1000}) * 1e-6,
                                 at::tensor({0.0f, -0.0f, 65504.0f, 65520.0f, 1e30f,
                                             std::numeric_limits<float>::infinity()})});
  const Tensor halves = values.to(at::kHalf), brains = values.to(at::kBFloat16);
  for (Index i = 0; i < values.size(0); ++i) {
    Float16 half{};
    Bfloat16 brain{};
    store(half, values[i].item<float>());
    store(brain, values[i].item<float>());
    CHECK(half.bits == halves.const_data_ptr<at::Half>()[i].x);
    CHECK(brain.bits == brains.const_data_ptr<at::BFloat16>()[i].x);
    CHECK(load(brain) == static_cast<float>(brains.const_data_ptr<at::BFloat16>()[i]));
    CHECK(load(half) == static_cast<float>(halves.const_data_ptr<at::Half>()[i]));
  }
}

}  // namespace device_row_kernels_test
