// Compares operators that have kernels only for GPUs with the same computation in LibTorch's
// operators: results, gradients, and gradients of gradients. On a GPU (tested::device()) its
// kernels run, and on the CPU the same code runs in the grid emulator. The test is in this folder
// because the kit for GPUs contains the program oracle_tests.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "device.h"
#include "hasten/ops/ops.h"
#include "hasten/prepare/detail/autocast.h"
#include "ops/adapted_weight.h"
#include "ops/bias_tanh_gelu.h"
#include "ops/composed_attention.h"
#include "ops/dropout_state.h"
#include "ops/embedding_gradient.h"
#include "ops/float_product.h"
#include "ops/gpu_linear.h"
#include "ops/gpu_rows.h"
#include "ops/softmax_dropout.h"
#include "unit/device/emulated_row_kernels.h"

namespace oracle_gpu_operators_test {

using namespace hasten;
using at::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

// Runs the kernels on the host if the device is the CPU.
class Kernels {
 public:
  Kernels() {
    if (tested::device().is_cpu()) emulated_.emplace();
  }

 private:
  std::optional<EmulatedRowKernels> emulated_;
};

// Returns the rounding error of a number of the type, relative to its size.
double rounding(at::ScalarType type) {
  if (type == at::kFloat) return 1e-5;
  return type == at::kBFloat16 ? 1.0 / 128 : 1.0 / 1024;
}

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16, at::kHalf};

void check_near(const Tensor& got, const Tensor& expected, double limit) {
  REQUIRE(got.sizes() == expected.sizes());
  const Tensor a = got.detach().cpu().to(at::kDouble), b = expected.detach().cpu().to(at::kDouble);
  if (a.numel() == 0) return;
  CHECK(((a - b).abs() / (1 + b.abs())).max().item<double>() <= limit);
}

Tensor on_device(const Tensor& values) { return values.to(tested::device()); }
Tensor leaf(const Tensor& values) { return on_device(values).detach().clone().requires_grad_(); }

// Returns dropout's scale for the elements that it keeps, and 0 for the others.
Tensor factors(at::IntArrayRef sizes, const ops::DropoutState& dropout) {
  return on_device(ops::apply_dropout(at::ones(sizes), dropout));
}

struct PreNorm {
  at::ScalarType type;
  std::vector<std::int64_t> sizes;
  bool has_bias, is_rms;
  double p;
};

// Returns cases with widths for one warp and for several, with full packs and without, with rows
// that need most of a thread's registers, and with many rows.
std::vector<PreNorm> pre_norms() {
  std::vector<PreNorm> all;
  const std::vector<std::vector<std::int64_t>> shapes = {
      {1, 3}, {5, 12}, {3, 31}, {2, 3, 128}, {9, 256}, {7, 300}, {2, 1030}, {2, 4168}, {1, 4099}};
  for (const at::ScalarType type : kTypes) {
    for (const auto& sizes : shapes) {
      for (const bool is_rms : {false, true}) all.push_back({type, sizes, !is_rms, is_rms, 0.2});
    }
    all.push_back({type, {70, 36}, true, true, 0.0});
    all.push_back({type, {6, 40}, false, false, 1.0});
  }
  all.push_back({at::kFloat, {9000, 4}, true, false, 0.1});  // one warp per row
  return all;
}

// Computes the same with LibTorch's operators, in float.
ops::NormedStream composed(const Tensor& x, const Tensor& bias, const Tensor& residual,
                           const Tensor& gamma, const Tensor& beta, const Tensor& kept) {
  const Tensor wide = x.to(at::kFloat), biased = bias.defined() ? wide + bias : wide;
  const Tensor z = biased * kept + residual;
  if (beta.defined()) return {z, at::layer_norm(z, {z.size(-1)}, gamma, beta, 1e-5)};
  return {z, z * (z.square().mean(-1, true) + 1e-5).rsqrt() * gamma};
}

}  // namespace

TEST_CASE("GPU operators: dropout_add_pre_norm and its gradients equal LibTorch's") {
  torch::manual_seed(1);
  const Kernels kernels;
  for (const PreNorm& c : pre_norms()) {
    CAPTURE(c.type);
    CAPTURE(c.sizes);
    CAPTURE(c.is_rms);
    const std::int64_t n = c.sizes.back();
    const Tensor x = leaf(at::randn(c.sizes).to(c.type)), residual = leaf(at::randn(c.sizes)),
                 gamma = leaf(at::randn({n})), bias = c.has_bias ? leaf(at::randn({n})) : Tensor(),
                 beta = c.is_rms ? Tensor() : leaf(at::randn({n}));
    const ops::DropoutState dropout{.seed = 17, .p = c.p};
    const ops::NormedStream got =
        ops::fused_dropout_add_pre_norm(x, bias, residual, gamma, beta, 1e-5, dropout);
    CHECK((got.stream.scalar_type() == at::kFloat));
    CHECK((got.normed.scalar_type() == c.type));
    const Tensor kept = factors(c.sizes, dropout);
    const ops::NormedStream expected = composed(x, bias, residual, gamma, beta, kept);
    const double limit = rounding(c.type);
    check_near(got.stream, expected.stream, 2e-6);
    check_near(got.normed, expected.normed, n < 4 ? 1e-2 : 2 * limit);

    Tensors inputs = {x, residual, gamma};
    if (bias.defined()) inputs.push_back(bias);
    if (beta.defined()) inputs.push_back(beta);
    const Tensor of_stream = on_device(at::randn(c.sizes)),
                 of_normed = on_device(at::randn(c.sizes).to(c.type));
    for (const bool joins : {false, true}) {
      CAPTURE(joins);
      const auto gradients = [&](const ops::NormedStream& out) {
        const Tensor y = (out.normed.to(at::kFloat) * of_normed.to(at::kFloat)).sum();
        return torch::autograd::grad({joins ? y + (out.stream * of_stream).sum() : y}, inputs, {},
                                     /*retain_graph=*/true);
      };
      const auto a = gradients(got), b = gradients(expected);
      for (std::size_t i = 0; i < a.size(); ++i) {
        CAPTURE(i);
        CHECK((a[i].scalar_type() == inputs[i].scalar_type()));
        // Sums over rows have more rounding errors. The normalization of a short row amplifies the
        // rounding errors of its deviation.
        check_near(a[i], b[i], (n < 4 ? 50 : i < 2 ? 8 : 32) * (i == 0 ? limit : 2e-6 * 4));
      }
    }
  }
}

TEST_CASE(
    "GPU operators: the stream of dropout_add_pre_norm alone has gradients, and second ones") {
  torch::manual_seed(2);
  const Kernels kernels;
  for (const bool is_rms : {false, true}) {
    CAPTURE(is_rms);
    const Tensor x = leaf(at::randn({3, 20})), bias = leaf(at::randn({20})),
                 residual = leaf(at::randn({3, 20})), gamma = leaf(at::randn({20})),
                 beta = is_rms ? Tensor() : leaf(at::randn({20}));
    const ops::DropoutState dropout{.seed = 5, .p = 0.3};
    const Tensor kept = factors({3, 20}, dropout);
    const Tensors inputs = {x, bias, residual};
    const auto got = [&] {
      return ops::fused_dropout_add_pre_norm(x, bias, residual, gamma, beta, 1e-5, dropout);
    };
    const auto expected = [&] { return composed(x, bias, residual, gamma, beta, kept); };
    const auto of_stream = [&](const ops::NormedStream& out) {
      return torch::autograd::grad({(out.stream * out.stream).sum()}, inputs);
    };
    const auto second = [&](const ops::NormedStream& out) {
      const auto first = torch::autograd::grad({(out.normed * out.normed * out.stream).sum()},
                                               inputs, {}, true, /*create_graph=*/true);
      return torch::autograd::grad({first[0].square().sum() + first[2].square().sum()}, inputs);
    };
    const auto check = [&](const Tensors& a, const Tensors& b) {
      for (std::size_t i = 0; i < a.size(); ++i) check_near(a[i], b[i], 2e-3);
    };
    check(of_stream(got()), of_stream(expected()));
    check(second(got()), second(expected()));
  }
}

TEST_CASE("GPU operators: a nearly constant stream keeps its small differences") {
  const Kernels kernels;
  const Tensor residual = at::full({1, 512}, 1000.0f) + at::randn({1, 512}) * 0.01,
               zeros = on_device(at::zeros({512})), ones = on_device(at::ones({512}));
  const Tensor y = ops::fused_dropout_add_pre_norm(on_device(at::zeros({1, 512})), zeros,
                                                   on_device(residual), ones, zeros, 1e-12, {})
                       .normed.cpu();
  const Tensor exact = residual.to(at::kDouble), centred = exact - exact.mean();
  CHECK((y - centred / centred.square().mean().sqrt()).abs().max().item<double>() < 1e-3);
}

TEST_CASE("GPU operators: softmax_dropout and its gradient equal LibTorch's") {
  torch::manual_seed(3);
  const Kernels kernels;
  struct Shape {
    std::int64_t batch, heads, queries, keys;
  };
  for (const at::ScalarType type : kTypes) {
    for (const Shape& s : {Shape{1, 1, 1, 1}, Shape{2, 3, 5, 5}, Shape{2, 2, 4, 12},
                           Shape{1, 2, 3, 130}, Shape{2, 1, 2, 1028}, Shape{1, 1, 2, 4099}}) {
      for (const bool has_mask : {false, true}) {
        for (const bool causal : {false, true}) {
          CAPTURE(type);
          CAPTURE(s.keys);
          CAPTURE(has_mask);
          CAPTURE(causal);
          const std::vector<std::int64_t> sizes = {s.batch, s.heads, s.queries, s.keys};
          const Tensor products = leaf((at::randn(sizes) * 4).to(type));
          Tensor mask;
          if (has_mask) {
            mask = at::zeros({s.batch, s.keys});
            // All keys of the first row are masked, and so are the last keys of the other rows.
            mask[0].fill_(-std::numeric_limits<float>::infinity());
            mask.narrow(1, s.keys - s.keys / 3, s.keys / 3)
                .fill_(-std::numeric_limits<float>::infinity());
            mask = on_device(mask);
          }
          const ops::DropoutState dropout{.seed = 23, .p = s.keys % 2 == 0 ? 0.3 : 0.0};
          const Tensor got = ops::softmax_dropout(products, mask, causal, 0.5, dropout);
          CHECK((got.scalar_type() == type));
          const Tensor wide = products.to(at::kFloat) * 0.5;
          const Tensor kept = factors(sizes, dropout);
          const Tensor expected = ops::softmax_of_scores(wide, mask, causal) * kept;
          check_near(got, expected, type == at::kFloat ? 1e-5 : rounding(type));
          CHECK_FALSE(got.detach().masked_select(kept.eq(0)).any().item<bool>());

          const Tensor of_result = on_device(at::randn(sizes).to(type));
          const auto gradient = [&](const Tensor& out) {
            return torch::autograd::grad({(out.to(at::kFloat) * of_result.to(at::kFloat)).sum()},
                                         {products}, {}, true)[0];
          };
          check_near(gradient(got), gradient(expected),
                     2 * (type == at::kFloat ? 1e-5 : rounding(type)));
        }
      }
    }
  }
}

TEST_CASE("GPU operators: the gradient of softmax_dropout can be differentiated") {
  torch::manual_seed(4);
  const Kernels kernels;
  const Tensor products = leaf(at::randn({1, 2, 3, 8}));
  const ops::DropoutState dropout{.seed = 3, .p = 0.25};
  const auto second = [&](const Tensor& out) {
    const Tensor first = torch::autograd::grad({out.square().sum()}, {products}, {}, true, true)[0];
    return torch::autograd::grad({first.square().sum()}, {products})[0];
  };
  check_near(
      second(ops::softmax_dropout(products, {}, true, 0.5, dropout)),
      second(ops::softmax_of_scores(products * 0.5, {}, true) * factors({1, 2, 3, 8}, dropout)),
      1e-4);
}

TEST_CASE(
    "GPU operators: a seed on the device, which a graph reads, counts instead of the number") {
  torch::manual_seed(6);
  const Kernels kernels;
  const ops::DropoutState number{.seed = 17, .p = 0.4};
  const ops::DropoutState place{
      .seed = 1, .p = 0.4, .seed_at = on_device(at::full({}, 17, at::kLong))};
  const Tensor x = leaf(at::randn({5, 24})), residual = leaf(at::randn({5, 24})),
               gamma = leaf(at::randn({24})), products = leaf(at::randn({1, 2, 3, 24}));
  const auto norms = [&](const ops::DropoutState& dropout) {
    const auto out = ops::fused_dropout_add_pre_norm(x, {}, residual, gamma, {}, 1e-5, dropout);
    return Tensors{out.stream, torch::autograd::grad({out.normed.sum()}, {x})[0]};
  };
  const auto probabilities = [&](const ops::DropoutState& dropout) {
    const Tensor out = ops::softmax_dropout(products, {}, false, 0.5, dropout);
    return Tensors{out, torch::autograd::grad({out.square().sum()}, {products})[0]};
  };
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(at::equal(norms(number)[i], norms(place)[i]));
    CHECK(at::equal(probabilities(number)[i], probabilities(place)[i]));
    CHECK_FALSE(at::equal(norms({.seed = 1, .p = 0.4})[i], norms(place)[i]));
  }
}

TEST_CASE("GPU operators: the gradient of an embedding table equals LibTorch's") {
  torch::manual_seed(5);
  const Kernels kernels;
  // Tests ids that occur in one chunk of tokens, in two, and in many, and tables with few and with
  // many rows.
  for (const std::int64_t tokens : {1, 7, 32, 33, 64, 300, 1000}) {
    for (const std::int64_t rows : {1, 2, 40, 700}) {
      for (const std::int64_t columns : {1, 36, 130}) {
        CAPTURE(tokens);
        CAPTURE(rows);
        CAPTURE(columns);
        const Tensor ids = at::randint(rows, {tokens}, at::kLong),
                     values = at::randn({tokens, columns});
        for (const std::int64_t skipped : {std::int64_t{-1}, ids[0].item<std::int64_t>()}) {
          const auto sums = [&] {
            return ops::embedding_gradient(on_device(values), on_device(ids), rows, skipped);
          };
          const Tensor got = sums();
          const Tensor expected =
              at::embedding_dense_backward(values.to(at::kDouble), ids, rows, skipped, false);
          check_near(got, expected, 1e-5);
          CHECK(at::equal(got, sums()));
        }
      }
    }
  }
  const Tensor none = ops::embedding_gradient(on_device(at::zeros({0, 4})),
                                              on_device(at::zeros({0}, at::kLong)), 3, -1);
  CHECK(at::equal(none.cpu(), at::zeros({3, 4})));
}

TEST_CASE("GPU operators: bias_tanh_gelu and its gradients equal LibTorch's") {
  torch::manual_seed(7);
  const Kernels kernels;
  for (const at::ScalarType type : kTypes) {
    for (const std::vector<std::int64_t>& sizes : std::vector<std::vector<std::int64_t>>{
             {1, 3}, {2, 3, 128}, {70, 36}, {300, 264}, {0, 36}}) {
      CAPTURE(type);
      CAPTURE(sizes);
      const Tensor x = leaf(at::randn(sizes).mul_(2).to(type)),
                   bias = leaf(at::randn({sizes.back()}));
      const Tensor got = ops::bias_tanh_gelu(x, bias);
      CHECK((got.scalar_type() == type));
      const Tensor expected = at::gelu(x.to(at::kFloat) + bias, "tanh");
      check_near(got, expected, rounding(type));
      const Tensor of_result = on_device(at::randn(sizes).to(type));
      const auto gradients = [&](const Tensor& y) {
        return torch::autograd::grad({(y.to(at::kFloat) * of_result.to(at::kFloat)).sum()},
                                     {x, bias}, {}, /*retain_graph=*/true);
      };
      const auto a = gradients(got), b = gradients(expected);
      check_near(a[0], b[0], rounding(type));
      CHECK((a[1].scalar_type() == at::kFloat));
      check_near(a[1], b[1], 4e-5);
    }
  }
  const Tensor x = leaf(at::randn({3, 8})), bias = leaf(at::randn({8}));
  const auto second = [&](const Tensor& y) {
    const Tensor first = torch::autograd::grad({y.square().sum()}, {x}, {}, true, true)[0];
    return torch::autograd::grad({first.square().sum()}, {bias})[0];
  };
  check_near(second(ops::bias_tanh_gelu(x, bias)), second(at::gelu(x + bias, "tanh")), 1e-4);
}

namespace {

struct LinearCase {
  at::ScalarType type;
  std::vector<std::int64_t> sizes;  // the shape of x
  std::int64_t out;
  bool has_bias, transposed;
};

std::vector<LinearCase> linear_cases() {
  std::vector<LinearCase> all;
  for (const at::ScalarType type : kTypes) {
    for (const std::vector<std::int64_t>& sizes :
         std::vector<std::vector<std::int64_t>>{{8}, {5, 16}, {2, 3, 24}, {2, 2, 40, 64}}) {
      for (const bool has_bias : {false, true}) {
        for (const bool transposed : {false, true})
          all.push_back({type, sizes, 24, has_bias, transposed});
      }
    }
    all.push_back({type, {4100, 16}, 1024, true, false});  // a kernel computes the bias gradient
  }
  return all;
}

// Returns autocast to a type of 16 bits. For float the guard changes nothing.
AutocastGuard autocast_to(at::ScalarType type) {
  const Precision precision = type == at::kFloat  ? Precision::no
                              : type == at::kHalf ? Precision::fp16
                                                  : Precision::bf16;
  return {precision, tested::device().type()};
}

}  // namespace

// The gradients of parameters must not be rounded to 16 bits, so they are compared with the
// gradients of exact products.
TEST_CASE("GPU operators: linear and its gradients equal those of exact products") {
  torch::manual_seed(8);
  const Kernels kernels;
  for (const LinearCase& c : linear_cases()) {
    CAPTURE(c.type);
    CAPTURE(c.sizes);
    CAPTURE(c.has_bias);
    CAPTURE(c.transposed);
    const std::int64_t in = c.sizes.back();
    const Tensor x = leaf(at::randn(c.sizes).to(c.type)),
                 weight = leaf(c.transposed ? at::randn({in, c.out}) : at::randn({c.out, in})),
                 bias = c.has_bias ? leaf(at::randn({c.out})) : Tensor();
    Tensors inputs = {x, weight};
    if (c.has_bias) inputs.push_back(bias);
    Tensors got;
    Tensor y, of_result;
    {
      const AutocastGuard autocast = autocast_to(c.type);
      y = ops::gpu_linear(x, weight, bias, c.transposed);
      CHECK((y.scalar_type() == c.type));
      of_result = at::randn_like(y);
    }
    got = torch::autograd::grad({y}, inputs, {of_result});

    const auto exact = [&](const Tensor& t) { return t.detach().cpu().to(at::kDouble); };
    const Tensor matrix = exact(weight.to(c.type)), w = c.transposed ? matrix.t() : matrix,
                 rows = exact(x).reshape({-1, in}), dy = exact(of_result).reshape({-1, c.out});
    Tensor expected = rows.mm(w.t());
    if (c.has_bias) expected = expected + exact(bias.to(c.type));
    check_near(y.reshape({-1, c.out}), expected, 4 * rounding(c.type));
    const Tensor dw = dy.t().mm(rows);
    check_near(got[0].reshape({-1, in}), dy.mm(w), 4 * rounding(c.type));
    for (std::size_t i = 0; i < got.size(); ++i)
      CHECK((got[i].scalar_type() == inputs[i].scalar_type()));
    // Sums of many numbers have more rounding errors. Their size depends on the size of the largest
    // sums.
    const double limit = 2e-5 + 2e-6 * std::sqrt(static_cast<double>(rows.size(0)));
    check_near(got[1], c.transposed ? dw.t() : dw, limit);
    if (c.has_bias) check_near(got[2], dy.sum(0), limit);
  }
}

TEST_CASE("GPU operators: linear with frozen parts, shared weights, and 16-bit parameters") {
  torch::manual_seed(9);
  const Kernels kernels;
  const Tensor x = leaf(at::randn({4, 8})), weight = leaf(at::randn({8, 8})),
               bias = leaf(at::randn({8})), frozen = on_device(at::randn({8, 8}));
  const AutocastGuard autocast = autocast_to(at::kBFloat16);
  const auto apply = [&](const Tensor& in, const Tensor& w) {
    return ops::gpu_linear(in, w, bias, /*transposed=*/false);
  };
  // A weight that is used twice gets the sum of both gradients.
  const Tensor twice = apply(apply(x, weight), weight);
  const Tensor usual = at::linear(at::linear(x, weight, bias), weight, bias);
  const auto gradients = [&](const Tensor& y, const Tensors& of) {
    return torch::autograd::grad({y.to(at::kFloat).sum()}, of, {}, /*retain_graph=*/true);
  };
  const auto check = [](const Tensor& a, const Tensor& b) {
    CHECK(((a - b).norm() / b.norm()).item<double>() < 2e-2);
  };
  check(twice, usual);
  const auto a = gradients(twice, {x, weight, bias}), b = gradients(usual, {x, weight, bias});
  for (std::size_t i = 0; i < a.size(); ++i) check(a[i], b[i]);
  CHECK(apply(on_device(at::randn({4, 8})), frozen).requires_grad());  // because of the bias
  check(gradients(apply(x, frozen), {x})[0], gradients(at::linear(x, frozen, bias), {x})[0]);
  const Tensor small = leaf(at::randn({8, 8}).to(at::kBFloat16));
  CHECK((gradients(apply(x, small), {small})[0].scalar_type() == at::kBFloat16));
}

// ops::linear computes with the weight alone and calls the adapter itself. The backward pass must
// not call the adapter.
TEST_CASE("GPU operators: linear and its gradients do not call the adapter of a weight") {
  torch::manual_seed(13);
  struct Unwanted : ops::WeightAdapter {
    Tensor apply(const Tensor&, const Tensor& y) const override {
      FAIL("the adapter was called");
      return y;
    }
  };
  const Kernels kernels;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const auto layout : {ops::WeightLayout::out_in, ops::WeightLayout::in_out}) {
      const bool transposed = layout == ops::WeightLayout::in_out;
      const Tensor x = leaf(at::randn({3, 8}).to(type)),
                   weight = on_device(at::randn({8, 8})).to(type),
                   adapted = ops::with_adapter(weight, layout, std::make_shared<Unwanted>());
      Tensor y;
      {
        const ops::NoAdaptersGuard weights_alone;
        y = ops::gpu_linear(x, adapted, {}, transposed);
      }
      const Tensor expected = at::mm(at::ones_like(y), transposed ? weight.t() : weight);
      check_near(torch::autograd::grad({y}, {x}, {at::ones_like(y)})[0], expected,
                 2 * rounding(type));
    }
  }
}

TEST_CASE("GPU operators: the gradients of linear can be differentiated, also under autocast") {
  torch::manual_seed(10);
  const Kernels kernels;
  const Tensor x = leaf(at::randn({3, 4, 8})), weight = leaf(at::randn({6, 8})),
               bias = leaf(at::randn({6}));
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    CAPTURE(type);
    const auto second = [&](const auto& linear) {
      Tensor y;
      {
        const AutocastGuard autocast = autocast_to(type);
        y = linear();
      }
      const auto first = torch::autograd::grad({y.to(at::kFloat).square().sum()}, {x, weight}, {},
                                               true, /*create_graph=*/true);
      return torch::autograd::grad({first[0].square().sum() + first[1].square().sum()},
                                   {x, weight, bias});
    };
    const auto a = second([&] { return ops::gpu_linear(x, weight, bias, /*transposed=*/false); }),
               b = second([&] { return at::linear(x, weight, bias); });
    for (std::size_t i = 0; i < a.size(); ++i)
      CHECK(((a[i] - b[i]).norm() / b[i].norm()).item<double>() <
            (type == at::kFloat ? 1e-5 : 3e-2));
  }
}

TEST_CASE("GPU operators: a product in float is not rounded to 16 bits, and adds to a sum") {
  torch::manual_seed(11);
  const Kernels kernels;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    CAPTURE(type);
    const Tensor a = at::randn({24, 40}).to(type), b = at::randn({24, 16}).to(type);
    Tensor sum = ops::float_product(on_device(a).t(), on_device(b));
    const Tensor once = a.to(at::kDouble).t().mm(b.to(at::kDouble));
    CHECK((sum.scalar_type() == at::kFloat));
    check_near(sum, once, 1e-5);
    ops::add_float_product(sum, on_device(a).t(), on_device(b));
    check_near(sum, 2 * once, 1e-5);
  }
}

TEST_CASE("GPU operators: linear_cross_entropy adds the gradients of many rows") {
  torch::manual_seed(12);
  const bool on_cpu = tested::device().is_cpu();
  const std::int64_t rows = on_cpu ? 300 : 6000, classes = on_cpu ? 1000 : 50304;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    if (on_cpu && type == at::kHalf) continue;  // the CPU has no kernel for this type
    CAPTURE(type);
    const Tensor hidden = leaf((at::randn({rows, 16}) * 0.5).to(type)),
                 weight = leaf((at::randn({classes, 16}) * 0.5).to(type)),
                 labels = on_device(at::randint(classes, {rows}, at::kLong));
    const Tensor wide = leaf(hidden.detach().to(at::kFloat)),
                 wide_weight = leaf(weight.detach().to(at::kFloat));
    const Tensor got = ops::linear_cross_entropy(hidden, weight, {}, labels);
    const Tensor expected = at::cross_entropy_loss(at::linear(wide, wide_weight), labels);
    CHECK(got.item<double>() == doctest::Approx(expected.item<double>()).epsilon(1e-3));
    const auto a = torch::autograd::grad({got}, {hidden, weight}),
               b = torch::autograd::grad({expected}, {wide, wide_weight});
    for (std::size_t i = 0; i < a.size(); ++i)
      CHECK(((a[i].to(at::kFloat) - b[i]).norm() / b[i].norm()).item<double>() < 2e-2);
  }
}

TEST_CASE("GPU operators: an id outside of the table is refused") {
  // On a GPU a failed check makes the GPU unusable for this process.
  if (!tested::device().is_cpu()) return;
  const Kernels kernels;
  CHECK_THROWS_AS(ops::embedding_gradient(at::zeros({2, 4}), at::full({2}, 3, at::kLong), 3, -1),
                  std::out_of_range);
}

}  // namespace oracle_gpu_operators_test
