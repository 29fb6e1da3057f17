// Compares every operator with the same arithmetic in LibTorch's own operators, forward and
// backward.
#include "hasten/ops/ops.h"

#include <ATen/Version.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <doctest/doctest.h>
#include <time.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "autograd/operator_calls.h"
#include "hasten/base/error.h"
#include "ops/kernels/kernels.h"

namespace ops_ops_test {

using namespace hasten;
using at::Tensor;

namespace {

Tensor leaf(at::IntArrayRef sizes) { return at::randn(sizes).requires_grad_(); }

double distance(const Tensor& a, const Tensor& b) { return (a - b).abs().max().item<double>(); }

// The gradients of sum(weights * f()) with respect to each input.
std::vector<Tensor> gradients(const Tensor& y, const Tensor& weights,
                              const std::vector<Tensor>& inputs) {
  return torch::autograd::grad({(y * weights).sum()}, inputs);
}

void check_same(const Tensor& fused, const Tensor& reference, const std::vector<Tensor>& inputs,
                double tolerance) {
  CHECK(distance(fused, reference) <= tolerance);
  const Tensor weights = at::randn(fused.sizes());
  const auto a = gradients(fused, weights, inputs), b = gradients(reference, weights, inputs);
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    CHECK(distance(a[i], b[i]) <= tolerance * (1 + b[i].abs().max().item<double>()));
  }
}

}  // namespace

TEST_CASE("ops: linear equals LibTorch's for small and large products, with and without bias") {
  torch::manual_seed(1);
  for (const auto& [rows, in, out] :
       {std::array<std::int64_t, 3>{3, 5, 7}, {64, 256, 512}, {130, 300, 129}}) {
    const Tensor x = leaf({2, rows, in}), w = leaf({out, in}), b = leaf({out});
    check_same(ops::linear(x, w, b), at::linear(x, w, b), {x, w, b}, 3e-4);
    check_same(ops::linear(x, w, {}), at::linear(x, w), {x, w}, 3e-4);
  }
}

TEST_CASE("ops: linear refuses shapes that do not fit") {
  CHECK_THROWS_AS(ops::linear(at::ones({2, 3}), at::ones({4, 5}), {}), c10::Error);
}

TEST_CASE("ops: bias_gelu equals gelu(x + bias)") {
  torch::manual_seed(2);
  const Tensor x = leaf({3, 17, 129}), b = leaf({129});
  check_same(ops::bias_gelu(x, b), at::gelu(x + b), {x, b}, 2e-6);
  const Tensor far =
      at::tensor({-30.0f, -9.0f, -5.5f, 0.0f, 5.5f, 30.0f, 1e30f, -1e30f}).view({1, 8});
  CHECK(distance(ops::bias_gelu(far, at::zeros({8})).slice(1, 0, 6), at::gelu(far).slice(1, 0, 6)) <
        1e-6);
  CHECK(ops::bias_gelu(at::full({1, 4}, NAN), at::zeros({4})).isnan().all().item<bool>());
}

TEST_CASE("ops: dropout_add_norm without dropout equals layer_norm(x + bias + residual)") {
  torch::manual_seed(3);
  const Tensor x = leaf({4, 9, 200}), b = leaf({200}), r = leaf({4, 9, 200}), g = leaf({200}),
               be = leaf({200});
  check_same(ops::dropout_add_norm(x, b, r, g, be, 1e-12, 0.1, /*training=*/false),
             at::layer_norm(x + b + r, {200}, g, be, 1e-12), {x, b, r, g, be}, 1e-5);
}

TEST_CASE("ops: dropout drops the given share, scales the rest, and backward does the same") {
  torch::manual_seed(4);
  const Tensor x = at::ones({400, 300}).requires_grad_();
  const Tensor y = ops::dropout(x, 0.1, true);
  const double kept = y.ne(0).to(at::kFloat).mean().item<double>();
  CHECK(std::abs(kept - 0.9) < 0.004);
  CHECK(std::abs(y.mean().item<double>() - 1.0) < 0.005);
  y.sum().backward();
  CHECK(distance(x.grad(), y) == 0);
  CHECK(at::equal(ops::dropout(x, 0.1, false), x));
}

TEST_CASE("ops: one seed drops the same elements with any number of threads") {
  const Tensor x = at::ones({300, 129});
  const int threads = at::get_num_threads();
  torch::manual_seed(5);
  const Tensor a = ops::dropout(x, 0.3, true), other = ops::dropout(x, 0.3, true);
  torch::manual_seed(5);
  at::set_num_threads(1);
  const Tensor b = ops::dropout(x, 0.3, true);
  at::set_num_threads(threads);
  CHECK(at::equal(a, b));
  CHECK_FALSE(at::equal(a, other));
  // There is no pattern along rows or columns: neighbours agree as often as chance predicts.
  const Tensor kept = a.ne(0).to(at::kFloat);
  CHECK(std::abs((kept.slice(0, 1) * kept.slice(0, 0, -1)).mean().item<double>() - 0.49) < 0.015);
  CHECK(std::abs((kept.slice(1, 1) * kept.slice(1, 0, -1)).mean().item<double>() - 0.49) < 0.015);
}

// tests/portability runs this file with each of these variables; without them there is nothing to
// check.
TEST_CASE("ops: environment variables choose the instruction sets") {
  if (const char* wish = std::getenv("HASTEN_CPU_KERNELS"))
    CHECK(std::string(ops::kernels().isa) == std::string(wish));
  if (const char* wish = std::getenv("ATEN_CPU_CAPABILITY")) {
    std::string capability = at::get_cpu_capability();
    for (char& letter : capability) letter = static_cast<char>(std::tolower(letter));
    CHECK(capability == std::string(wish));
  }
}

TEST_CASE("ops: an instruction set is chosen by its name, and an unknown one is refused") {
  for (const ops::Kernels* set : ops::runnable_kernels())
    CHECK(&ops::choose_kernels(set->isa) == set);
  CHECK(&ops::choose_kernels("") == ops::runnable_kernels().back());
  CHECK_THROWS_WITH_AS(ops::choose_kernels("avx3"), doctest::Contains("can run: baseline"),
                       ConfigError);
}

TEST_CASE("ops: every instruction set gives the same decisions and the same numbers") {
  const ops::Dropout dropout = ops::Dropout::make(0.25, 12345);
  const std::int64_t rows = 7, columns = 301;
  const Tensor x = at::randn({rows, columns}), bias = at::randn({columns});
  std::vector<Tensor> dropped, activated;
  for (const ops::Kernels* set : ops::runnable_kernels()) {
    Tensor y = at::empty_like(x), z = at::empty_like(x);
    set->f32.dropout(x.const_data_ptr<float>(), dropout, 3, y.mutable_data_ptr<float>(), rows,
                     columns);
    set->f32.bias_gelu(x.const_data_ptr<float>(), bias.const_data_ptr<float>(),
                       z.mutable_data_ptr<float>(), rows, columns);
    dropped.push_back(y);
    activated.push_back(z);
  }
  for (std::size_t i = 1; i < dropped.size(); ++i) {
    CHECK(at::equal(dropped[0], dropped[i]));
    CHECK(distance(activated[0], activated[i]) < 1e-6);
  }
}

TEST_CASE("ops: the gradient of dropout_add_norm uses the decisions of its forward pass") {
  torch::manual_seed(6);
  const Tensor x = leaf({5, 64}), b = leaf({64}), r = leaf({5, 64}), g = leaf({64}),
               be = leaf({64});
  torch::manual_seed(7);
  const Tensor y = ops::dropout_add_norm(x, b, r, g, be, 1e-5, 0.4, true);
  torch::manual_seed(7);
  const Tensor mask =
      ops::dropout(at::ones({5, 64}), 0.4,
                   true);  // the same seed, rows and columns give the same decisions
  check_same(y, at::layer_norm((x + b) * mask + r, {64}, g, be, 1e-5), {x, b, r, g, be}, 1e-5);
}

TEST_CASE("ops: attention equals LibTorch's, masked and unmasked, forward and backward") {
  torch::manual_seed(8);
  const std::int64_t batch = 3, length = 37, heads = 4, size = 16;
  const Tensor q = leaf({batch, length, heads * size}), k = leaf({batch, length, heads * size}),
               v = leaf({batch, length, heads * size});
  Tensor padded = at::ones({batch, length}, at::kLong), holes = padded.clone();
  padded[0].slice(0, 20).zero_();
  padded[2].slice(0, 1).zero_();
  holes[1].slice(0, 3, 9).zero_();
  const auto split = [&](const Tensor& x) {
    return x.view({batch, length, heads, size}).transpose(1, 2);
  };
  for (const Tensor& mask : {Tensor(), padded, holes}) {
    std::optional<Tensor> allowed;
    if (mask.defined())
      allowed = mask.to(at::kBool).view({batch, 1, 1, length}).expand({batch, 1, length, length});
    const Tensor reference = at::scaled_dot_product_attention(split(q), split(k), split(v), allowed)
                                 .transpose(1, 2)
                                 .reshape(q.sizes());
    check_same(ops::attention(q, k, v, ops::KeyMask(mask), heads, 0.0, true), reference, {q, k, v},
               1e-5);
  }
}

TEST_CASE("ops: attention under dropout is the product with the dropped probabilities") {
  torch::manual_seed(9);
  const std::int64_t length = 24, heads = 2, size = 8;
  const Tensor q = leaf({1, length, heads * size}), k = leaf({1, length, heads * size}),
               v = leaf({1, length, heads * size});
  torch::manual_seed(10);
  const Tensor fused = ops::attention(q, k, v, ops::KeyMask({}), heads, 0.3, true);
  torch::manual_seed(10);
  const Tensor mask =
      ops::dropout(at::ones({heads * length, length}), 0.3, true).view({1, heads, length, length});
  const auto split = [&](const Tensor& x) {
    return x.view({1, length, heads, size}).transpose(1, 2);
  };
  const Tensor p =
      at::softmax(at::matmul(split(q), split(k).transpose(2, 3)) / std::sqrt(8.0), -1) * mask;
  check_same(fused, at::matmul(p, split(v)).transpose(1, 2).reshape(q.sizes()), {q, k, v}, 1e-5);
}

TEST_CASE("ops: a row with nothing to attend to gives zeros and no NaN") {
  const Tensor q = leaf({1, 4, 8}), k = leaf({1, 4, 8}), v = leaf({1, 4, 8});
  const Tensor y =
      ops::attention(q, k, v, ops::KeyMask(at::zeros({1, 4}, at::kLong)), 2, 0.0, true);
  CHECK(y.abs().max().item<double>() == 0);
  for (const Tensor& gradient : gradients(y, at::ones_like(y), {q, k, v}))
    CHECK(gradient.isfinite().all().item<bool>());
}

TEST_CASE("ops: embedding_sum adds three tables, and its sparse gradient equals the dense one") {
  torch::manual_seed(11);
  const Tensor word = leaf({50, 12}), position = leaf({16, 12}), type = leaf({2, 12});
  const Tensor ids = at::randint(0, 50, {3, 10}), types = at::randint(0, 2, {3, 10});
  const Tensor positions = at::randint(0, 16, {3, 10});
  for (const Tensor& at_positions : {Tensor(), positions}) {
    const auto reference = [&] {
      return at::embedding(word, ids, 7) + at::embedding(type, types) +
             (at_positions.defined() ? at::embedding(position, at_positions)
                                     : position.slice(0, 0, 10));
    };
    check_same(ops::embedding_sum(word, position, type, ids, at_positions, types, 7, false),
               reference(), {word, position, type}, 1e-6);
    const Tensor weights = at::randn({3, 10, 12});
    const Tensor sparse =
        gradients(ops::embedding_sum(word, position, type, ids, at_positions, types, 7, true),
                  weights, {word})[0];
    const Tensor dense = gradients(reference(), weights, {word})[0];
    REQUIRE(sparse.is_sparse());
    CHECK(sparse.is_coalesced());
    CHECK(distance(sparse.to_dense(), dense) < 1e-6);
  }
}

TEST_CASE("ops: the error for an id outside the table names its row and position") {
  Tensor ids = at::zeros({2, 3}, at::kLong);
  ids[1][2] = 9;
  try {
    ops::embedding_sum(at::zeros({9, 4}), at::zeros({8, 4}), at::zeros({2, 4}), ids, {}, {}, -1,
                       false);
    FAIL("expected an error");
  } catch (const DataError& error) {
    CHECK(error.code() == "models.id-out-of-range");
    CHECK(std::string(error.what()) ==
          "input_ids, row 1 position 2 of the batch: got id 9, expected 0 to 8. Hint: use the "
          "tokenizer that belongs to the model");
  }
  CHECK_THROWS_AS(ops::embedding_sum(at::zeros({9, 4}), at::zeros({2, 4}), at::zeros({2, 4}),
                                     at::zeros({1, 3}, at::kLong), {}, {}, -1, false),
                  DataError);
}

TEST_CASE("ops: the fused operators in bfloat16 stay within its rounding of the float results") {
  torch::manual_seed(12);
  const Tensor x = at::randn({6, 100}), b = at::randn({100}), r = at::randn({6, 100}),
               g = at::randn({100}), be = at::randn({100});
  const Tensor low = x.to(at::kBFloat16);
  CHECK(distance(ops::bias_gelu(low, b).to(at::kFloat), at::gelu(low.to(at::kFloat) + b)) < 0.02);
  const Tensor y = ops::dropout_add_norm(low, b, r.to(at::kBFloat16), g, be, 1e-5, 0, false);
  CHECK((y.scalar_type() == at::kBFloat16));
  CHECK(distance(y.to(at::kFloat), at::layer_norm(low.to(at::kFloat) + b + r, {100}, g, be, 1e-5)) <
        0.06);
}

TEST_CASE("ops: each is an operator of LibTorch's dispatcher, and ignores tensors without data") {
  for (const char* name :
       {"bias_gelu", "bias_gelu_backward", "dropout", "dropout_add_norm",
        "dropout_add_norm_backward", "attention", "attention_backward", "column_sum",
        "embedding_sum", "embedding_scatter", "embedding_gather", "rms_norm", "rms_norm_backward",
        "silu_multiply", "silu_multiply_backward", "rotate", "adamw", "adamw_rows",
        "sum_of_squares"}) {
    CAPTURE(name);
    const auto op = c10::Dispatcher::singleton().findSchema({std::string("hasten::") + name, ""});
    REQUIRE(op.has_value());
    CHECK(op->hasKernelForDispatchKey(c10::DispatchKey::CPU));
    CHECK(op->hasKernelForDispatchKey(c10::DispatchKey::Meta));
    CHECK(op->schema().returns().empty());
  }
  const Tensor x = at::empty({3, 4}, at::kMeta), y = at::empty({3, 4}, at::kMeta);
  c10::Dispatcher::singleton()
      .findSchemaOrThrow("hasten::dropout", "")
      .typed<void(const Tensor&, std::int64_t, double, const Tensor&)>()
      .call(x, 1, 0.5, y);
}

TEST_CASE("ops: an in-place change of an input between forward and backward is detected") {
  const Tensor w = leaf({4, 6}), source = leaf({3, 6});
  Tensor x = source * 1;
  const Tensor y = ops::linear(x, w, {});
  x.add_(1);
  CHECK_THROWS_AS(y.sum().backward(), c10::Error);
}

// The rows have 3, 7 and 5 tokens, packed and with padding.
TEST_CASE("ops: attention of packed rows equals that of padded rows") {
  const std::vector<std::int64_t> lengths = {3, 7, 5};
  const auto pad = [&](const Tensor& x) {
    return at::pad_sequence(x.squeeze(0).split_with_sizes(lengths), /*batch_first=*/true);
  };
  const auto pack = [&](const Tensor& x) {
    return at::cat({x[0].narrow(0, 0, 3), x[1].narrow(0, 0, 7), x[2].narrow(0, 0, 5)}).unsqueeze(0);
  };
  Tensor mask = at::zeros({3, 7}, at::kLong);
  for (std::int64_t row = 0; row < 3; ++row)
    mask[row].narrow(0, 0, lengths[static_cast<std::size_t>(row)]).fill_(1);
  const ops::KeyMask packed = ops::KeyMask::packed(lengths), whole(mask);
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const double p : {0.0, 0.3}) {
      CAPTURE(p);
      const auto make = [&] { return at::randn({1, 15, 8}, type).requires_grad_(); };
      const Tensor q = make(), k = make(), v = make();
      const auto attend = [&](bool packs) {
        at::manual_seed(4);  // the same dropout
        return packs ? ops::attention(q, k, v, packed, 2, p, true)
                     : pack(ops::attention(pad(q), pad(k), pad(v), whole, 2, p, true));
      };
      check_same(attend(true), attend(false), {q, k, v}, 1e-5);
      // The second derivatives agree too.
      const auto penalty = [&](const Tensor& y) {
        Tensor sum = at::zeros({}, type);
        for (const Tensor& each : torch::autograd::grad({y.square().sum()}, {q, k, v}, {}, true,
                                                        /*create_graph=*/true))
          sum = sum + each.square().sum();
        return sum;
      };
      const Tensor fused = penalty(attend(true)), reference = penalty(attend(false));
      const auto a = torch::autograd::grad({fused}, {q, k, v}),
                 b = torch::autograd::grad({reference}, {q, k, v});
      for (std::size_t i = 0; i < 3; ++i)
        CHECK(distance(a[i], b[i]) <= 1e-4 * (1 + b[i].abs().max().item<double>()));
    }
  }
  const Tensor x = at::randn({1, 15, 8});
  CHECK(distance(ops::eager_attention(x, x, x, packed, 2, 0, false),
                 ops::attention(x, x, x, packed, 2, 0, false)) < 1e-5);
  const Tensor low = x.to(at::kBFloat16);
  CHECK(distance(ops::attention(low, low, low, packed, 2, 0, false).to(at::kFloat),
                 ops::attention(x, x, x, packed, 2, 0, false)) < 0.05);
  CHECK_THROWS_AS(ops::attention(x, x, x, ops::KeyMask::packed({3, 7}), 2, 0, false), c10::Error);
  CHECK_THROWS_AS(ops::KeyMask::packed({}), c10::Error);
}

namespace {

// A call of attention with heads that share keys, and the same arithmetic with LibTorch's operators.
struct CausalCase {
  std::int64_t batch, queries, keys, heads, key_heads, size;
  Tensor mask = {};  // [batch, keys]
  std::optional<double> scale = {};

  Tensor make(std::int64_t tokens, std::int64_t of_heads, at::ScalarType type) const {
    return at::randn({batch, tokens, of_heads * size}, type).requires_grad_();
  }
  ops::AttentionHeads of_heads() const { return {heads, key_heads, scale}; }
  Tensor split(const Tensor& x) const {
    return x.reshape({batch, x.size(1), -1, size}).transpose(1, 2);
  }
  // `dropped` has the factors of the probabilities.
  Tensor reference(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& dropped) const {
    const auto repeated = [&](const Tensor& x) {
      return split(x).repeat_interleave(heads / key_heads, 1);
    };
    Tensor allowed = at::ones({queries, keys}, at::kBool).tril(keys - queries);
    if (mask.defined()) allowed = allowed.logical_and(mask.ne(0).view({batch, 1, 1, keys}));
    const Tensor scores = at::matmul(split(q), repeated(k).transpose(2, 3)) *
                          scale.value_or(1 / std::sqrt(static_cast<double>(size)));
    const Tensor p = at::softmax(scores.masked_fill(allowed.logical_not(), -1e30), -1)
                         .masked_fill(allowed.logical_not(), 0);
    return at::matmul(p * dropped, repeated(v)).transpose(1, 2).reshape(q.sizes());
  }
};

std::vector<CausalCase> causal_cases() {
  Tensor left = at::ones({2, 9}, at::kLong), right = left.clone();
  left[0].narrow(0, 0, 4).zero_();  // its first queries have no key
  right[1].narrow(0, 5, 4).zero_();
  return {{2, 9, 9, 4, 4, 6},       {2, 9, 9, 4, 2, 6, left}, {2, 9, 9, 4, 1, 6, right, 0.7},
          {2, 1, 9, 2, 2, 8, left},                          // a token after those of a cache
          {1, 3, 11, 6, 3, 4},      {1, 300, 300, 2, 1, 8},  // several blocks of queries
          {2, 150, 290, 2, 2, 8}};
}

}  // namespace

TEST_CASE("ops: causal attention equals the masked product, also with shared heads and a cache") {
  torch::manual_seed(17);
  for (const CausalCase& c : causal_cases()) {
    CAPTURE(c.queries);
    CAPTURE(c.key_heads);
    for (const double p : {0.0, 0.3}) {
      CAPTURE(p);
      const Tensor q = c.make(c.queries, c.heads, at::kFloat),
                   k = c.make(c.keys, c.key_heads, at::kFloat),
                   v = c.make(c.keys, c.key_heads, at::kFloat);
      const ops::KeyMask mask = ops::KeyMask(c.mask).causal();
      at::manual_seed(5);
      const Tensor fused = ops::attention(q, k, v, mask, c.of_heads(), p, true);
      at::manual_seed(5);
      const Tensor dropped =
          ops::dropout(at::ones({c.batch * c.heads * c.queries, c.keys}), p, true)
              .view({c.batch, c.heads, c.queries, c.keys});
      check_same(fused, c.reference(q, k, v, dropped), {q, k, v}, 1e-5);
      if (p > 0) continue;
      check_same(ops::eager_attention(q, k, v, mask, c.of_heads(), p, true),
                 c.reference(q, k, v, dropped), {q, k, v}, 1e-5);
    }
  }
}

TEST_CASE("ops: causal attention has second derivatives, and takes double and bfloat16") {
  torch::manual_seed(18);
  for (const CausalCase& c : causal_cases()) {
    CAPTURE(c.queries);
    CAPTURE(c.key_heads);
    const ops::KeyMask mask = ops::KeyMask(c.mask).causal();
    const Tensor q = c.make(c.queries, c.heads, at::kFloat),
                 k = c.make(c.keys, c.key_heads, at::kFloat),
                 v = c.make(c.keys, c.key_heads, at::kFloat);
    const auto penalty = [&](const Tensor& y) {
      Tensor sum = at::zeros({});
      for (const Tensor& each : torch::autograd::grad({y.square().sum()}, {q, k, v}, {}, true,
                                                      /*create_graph=*/true))
        sum = sum + each.square().sum();
      return sum;
    };
    const auto a = torch::autograd::grad(
                   {penalty(ops::attention(q, k, v, mask, c.of_heads(), 0, true))}, {q, k, v}),
               b = torch::autograd::grad({penalty(c.reference(q, k, v, at::ones({})))}, {q, k, v});
    for (std::size_t i = 0; i < 3; ++i)
      CHECK(distance(a[i], b[i]) <= 1e-4 * (1 + b[i].abs().max().item<double>()));
    const auto attend = [&](at::ScalarType type) {
      return ops::attention(q.detach().to(type), k.detach().to(type), v.detach().to(type), mask,
                            c.of_heads(), 0, false)
          .to(at::kFloat);
    };
    const Tensor exact = c.reference(q, k, v, at::ones({})).detach();
    CHECK(distance(attend(at::kDouble), exact) < 1e-5);
    CHECK(distance(attend(at::kBFloat16), exact) < 0.1);
  }
}

TEST_CASE("ops: attention reads parts of larger tensors in place, with the same result") {
  torch::manual_seed(19);
  const Tensor all = leaf({2, 140, 3 * 16});
  const auto parts = all.chunk(3, -1);
  for (const bool causal : {false, true}) {
    const ops::KeyMask plain{Tensor()}, mask = causal ? plain.causal() : plain;
    const Tensor in_place = ops::attention(parts[0], parts[1], parts[2], mask, 4, 0, true),
                 copied = ops::attention(parts[0].contiguous(), parts[1].contiguous(),
                                         parts[2].contiguous(), mask, 4, 0, true);
    check_same(in_place, copied, {all}, 1e-6);
  }
  // The keys of a cache, of which some are not written yet.
  const Tensor cache = at::randn({2, 20, 16});
  const Tensor q = at::randn({2, 1, 16}), keys = cache.narrow(1, 0, 7);
  const ops::KeyMask mask =
      ops::KeyMask(at::ones({2, 20}).index_fill(1, at::tensor({0, 1}, at::kLong), 0));
  CHECK(distance(ops::attention(q, keys, keys, mask.first_keys(7).causal(), 4, 0, false),
                 ops::attention(q, keys.contiguous(), keys.contiguous(),
                                ops::KeyMask(at::tensor({0, 0, 1, 1, 1, 1, 1}).expand({2, 7})), 4,
                                0, false)) < 1e-6);
}

TEST_CASE("ops: causal attention of packed rows equals that of each row") {
  torch::manual_seed(20);
  const std::vector<std::int64_t> lengths = {3, 140, 5};
  const Tensor q = leaf({1, 148, 8}), k = leaf({1, 148, 4}), v = leaf({1, 148, 4});
  const ops::AttentionHeads heads(4, 2);
  std::vector<Tensor> rows;
  std::int64_t start = 0;
  for (const std::int64_t length : lengths) {
    const auto row = [&](const Tensor& x) { return x.narrow(1, start, length); };
    rows.push_back(
        ops::attention(row(q), row(k), row(v), ops::KeyMask({}).causal(), heads, 0, true));
    start += length;
  }
  const Tensor packed =
      ops::attention(q, k, v, ops::KeyMask::packed(lengths).causal(), heads, 0, true);
  check_same(packed, at::cat(rows, 1), {q, k, v}, 1e-5);
  CHECK(distance(ops::attention(q.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble),
                                ops::KeyMask::packed(lengths).causal(), heads, 0, true)
                     .to(at::kFloat),
                 packed) < 1e-5);
}

TEST_CASE("ops: attention refuses heads and keys that do not fit") {
  const Tensor q = at::ones({2, 4, 12}), k = at::ones({2, 4, 6});
  const ops::KeyMask everywhere{Tensor()};
  CHECK_THROWS_AS(ops::attention(q, k, k, everywhere, {4, 3}, 0, false), c10::Error);
  CHECK_THROWS_AS(ops::attention(q, k, k, everywhere, {4, 0}, 0, false), c10::Error);
  CHECK_THROWS_AS(ops::attention(q, k, k, everywhere, 4, 0, false), c10::Error);
  CHECK_THROWS_AS(ops::attention(q, k.narrow(1, 0, 3), k.narrow(1, 0, 3), everywhere.causal(),
                                 {4, 2}, 0, false),
                  c10::Error);
  CHECK_NOTHROW(
      ops::attention(q, k.narrow(1, 0, 3), k.narrow(1, 0, 3), everywhere, {4, 2}, 0, false));
}

TEST_CASE("ops: linear_transposed equals the product with the matrix as it is stored") {
  torch::manual_seed(21);
  for (const auto& [rows, in, out] :
       {std::array<std::int64_t, 3>{3, 5, 7}, {64, 256, 512}, {130, 300, 129}}) {
    const Tensor x = leaf({2, rows, in}), w = leaf({in, out}), b = leaf({out});
    check_same(ops::linear_transposed(x, w, b), at::matmul(x, w) + b, {x, w, b}, 3e-4);
    check_same(ops::linear_transposed(x, w, {}), at::matmul(x, w), {x, w}, 3e-4);
    const Tensor gradient =
        gradients(ops::linear_transposed(x, w, b), at::ones({2, rows, out}), {w})[0];
    CHECK(gradient.is_contiguous());  // as the parameter, so that an optimizer copies nothing
  }
  const Tensor x = leaf({3, 4}), w = leaf({4, 2});
  const Tensor first = torch::autograd::grad({ops::linear_transposed(x, w, {}).square().sum()}, {w},
                                             {}, true, /*create_graph=*/true)[0];
  const Tensor same =
      torch::autograd::grad({at::matmul(x, w).square().sum()}, {w}, {}, true, true)[0];
  CHECK(distance(torch::autograd::grad({first.square().sum()}, {x})[0],
                 torch::autograd::grad({same.square().sum()}, {x})[0]) < 1e-4);
  CHECK_THROWS_AS(ops::linear_transposed(at::ones({2, 3}), at::ones({4, 3}), {}), c10::Error);
}

TEST_CASE("ops: embedding_sum of fewer tables adds those that are there") {
  torch::manual_seed(22);
  const Tensor word = leaf({50, 12}), position = leaf({16, 12}), type = leaf({2, 12});
  const Tensor ids = at::randint(0, 50, {3, 10});
  check_same(ops::embedding_sum(word, {}, {}, ids, {}, {}, 7, false), at::embedding(word, ids, 7),
             {word}, 1e-6);
  check_same(ops::embedding_sum(word, position, {}, ids, {}, {}, -1, false),
             at::embedding(word, ids) + position.narrow(0, 0, 10), {word, position}, 1e-6);
  check_same(ops::embedding_sum(word, {}, type, ids, {}, {}, -1, false),
             at::embedding(word, ids) + type[0], {word, type}, 1e-6);
  const Tensor sparse = gradients(ops::embedding_sum(word, {}, {}, ids, {}, {}, 7, true),
                                  at::ones({3, 10, 12}), {word})[0];
  REQUIRE(sparse.is_sparse());
  CHECK(distance(sparse.to_dense(),
                 gradients(at::embedding(word, ids, 7), at::ones({3, 10, 12}), {word})[0]) < 1e-6);
}

TEST_CASE("ops: embedding_sum computes no gradient of a frozen table") {
  struct Scatters final : OperatorInterceptor {
    void call(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
              torch::jit::Stack* stack) override {
      if (op.schema().name() == "hasten::embedding_scatter") ++count;
      call_operator_kernel(op, keys, stack);
    }
    int count = 0;
  };
  const Tensor word = leaf({50, 12}), position = leaf({16, 12}), type = leaf({2, 12});
  const Tensor ids = at::randint(0, 50, {3, 10}), types = at::randint(0, 2, {3, 10}),
               positions = at::randint(0, 16, {3, 10});
  const auto scatters = [&](const std::vector<Tensor>& trained, bool has_position) {
    for (const Tensor& each : {word, position, type}) {
      each.set_requires_grad(std::any_of(trained.begin(), trained.end(),
                                         [&](const Tensor& one) { return one.is_same(each); }));
    }
    Scatters counter;
    const InterceptionScope scope(&counter);
    for (const Tensor& each :
         gradients(ops::embedding_sum(word, has_position ? position : Tensor(), type, ids,
                                      has_position ? positions : Tensor(), types, 7, false),
                   at::ones({3, 10, 12}), trained))
      CHECK(each.abs().sum().item<double>() > 0);
    return counter.count;
  };
  CHECK(scatters({word, position, type}, true) == 3);
  CHECK(scatters({position}, true) == 1);
  CHECK(scatters({type}, true) == 1);
  CHECK(scatters({type}, false) == 1);
  CHECK(scatters({word, type}, false) == 2);
}

namespace {

// Sets LibTorch's number of threads and restores it at the end of the scope.
class ThreadCountScope {
 public:
  explicit ThreadCountScope(int count) : before_(at::get_num_threads()) {
    at::set_num_threads(count);
  }
  ~ThreadCountScope() { at::set_num_threads(before_); }

 private:
  int before_;
};

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The share of the processor time of `work` that threads other than this one used.
template <class Work>
double share_of_other_threads(Work work) {
  const double all = seconds_of(CLOCK_PROCESS_CPUTIME_ID),
               own = seconds_of(CLOCK_THREAD_CPUTIME_ID);
  work();
  const double of_all = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - all;
  return 1 - (seconds_of(CLOCK_THREAD_CPUTIME_ID) - own) / of_all;
}

// The results and gradients of every operator that divides its rows among threads, on tensors that
// are large enough for it.
std::vector<Tensor> large_operators() {
  at::manual_seed(3);
  const Tensor x = leaf({8, 96, 128}), r = leaf({8, 96, 128}), b = leaf({128}), g = leaf({128}),
               be = leaf({128}), w = leaf({256, 128});
  Tensor mask = at::ones({8, 96}, at::kLong);
  for (int row = 0; row < 8; ++row) mask[row].slice(0, 96 - 11 * row).zero_();
  const Tensor ids = at::randint(0, 50, {8, 96}), table = leaf({50, 128}), more = leaf({96, 128});
  std::vector<Tensor> all = {
      ops::bias_gelu(x, b),
      ops::dropout(x, 0.1, true),
      ops::dropout_add_norm(x, b, r, g, be, 1e-5, 0.1, true),
      ops::attention(x, r, x, ops::KeyMask(mask), 4, 0.1, true),
      ops::attention(x, r, x, ops::KeyMask(Tensor()), 4, 0.1, true),
      ops::linear(x, w, {}),
      ops::embedding_sum(table, more, more, ids, {}, {}, -1, false),
  };
  Tensor sum = at::zeros({});
  for (const Tensor& each : all) sum = sum + (each * each).sum();
  for (const Tensor& each : torch::autograd::grad({sum}, {x, r, b, g, be, w, table, more}))
    all.push_back(each);
  return all;
}

}  // namespace

TEST_CASE("ops: rows are divided among LibTorch's threads") {
  const ThreadCountScope two(2);
  const Tensor x = at::randn({4096, 512}), b = at::randn({512});
  const Tensor q = at::randn({16, 128, 256});
  ops::bias_gelu(x, b);  // starts the threads
  const auto repeat = [](auto operation) {
    return share_of_other_threads([&] {
      for (int i = 0; i < 20; ++i) operation();
    });
  };
  CHECK(repeat([&] { ops::bias_gelu(x, b); }) > 0.2);
  CHECK(repeat([&] { ops::attention(q, q, q, ops::KeyMask(Tensor()), 4, 0.1, true); }) > 0.2);
}

TEST_CASE("ops: the number of threads changes only the order of sums") {
  const auto results_with = [](int count) {
    const ThreadCountScope threads(count);
    return large_operators();
  };
  const std::vector<Tensor> alone = results_with(1);
  for (const int count : {2, 3, 5}) {
    CAPTURE(count);
    const std::vector<Tensor> shared = results_with(count), again = results_with(count);
    for (std::size_t i = 0; i < alone.size(); ++i) {
      CAPTURE(i);
      CHECK(distance(shared[i], alone[i]) <= 1e-4 * (1 + alone[i].abs().max().item<double>()));
      CHECK(at::equal(shared[i], again[i]));
    }
  }
}

// For operands with gaps, oneDNN has only a reference implementation, which is a hundred times
// slower.
TEST_CASE("ops: a product of rows with gaps between them is about as fast as one of dense rows") {
  const Tensor whole = at::randn({48, 40, 384}), w = leaf({384, 384});
  const auto milliseconds = [&](const Tensor& x) {
    double least = 1e9;
    for (int i = 0; i < 5; ++i) {
      const double before = seconds_of(CLOCK_MONOTONIC);
      ops::linear(x, w, {}).sum().backward();
      least = std::min(least, 1e3 * (seconds_of(CLOCK_MONOTONIC) - before));
    }
    return least;
  };
  const Tensor strided = whole.select(1, 0), dense = strided.contiguous();
  CHECK(distance(ops::linear(strided, w, {}), ops::linear(dense, w, {})) < 1e-3);
  CHECK(milliseconds(strided) < 10 * milliseconds(dense) + 1);
}

}  // namespace ops_ops_test
