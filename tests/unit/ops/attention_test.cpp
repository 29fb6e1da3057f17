// Attention compared with LibTorch's operators: masked, causal, packed, with shared heads.
#include <ATen/Version.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <doctest/doctest.h>
#include <time.h>
#include <torch/torch.h>

#include <cmath>
#include <optional>
#include <vector>

#include "autograd/operator_calls.h"
#include "hasten/base/error.h"
#include "hasten/ops/ops.h"
#include "ops/kernels/kernels.h"
#include "ops/packed_attention.h"
#include "unit/each_row_attention.h"
#include "unit/ops/operator_checks.h"

namespace ops_attention_test {

using namespace hasten;
using at::Tensor;
using namespace hasten::operator_checks;

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

// A call of attention with heads that share keys, and the same arithmetic with LibTorch's
// operators.
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
  // `dropped` has the factors by which dropout multiplies the probabilities.
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
          {2, 1, 9, 2, 2, 8, left},                          // a new token after cached tokens
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
  // Some keys of this cache are not written yet.
  const Tensor cache = at::randn({2, 20, 16});
  const Tensor q = at::randn({2, 1, 16}), keys = cache.narrow(1, 0, 7);
  const ops::KeyMask mask =
      ops::KeyMask(at::ones({2, 20}).index_fill(1, at::tensor({0, 1}, at::kLong), 0));
  CHECK(distance(ops::attention(q, keys, keys, mask.first_keys(7).causal(), 4, 0, false),
                 ops::attention(q, keys.contiguous(), keys.contiguous(),
                                ops::KeyMask(at::tensor({0, 0, 1, 1, 1, 1, 1}).expand({2, 7})), 4,
                                0, false)) < 1e-6);
}

// On a GPU another operator computes packed rows. Everything else runs here.
TEST_CASE("ops: packed rows that the operator of a device computes equal those of the CPU") {
  torch::manual_seed(12);
  const std::vector<std::int64_t> lengths = {4, 9, 1, 6};
  const std::int64_t tokens = 20, size = 8;
  for (const std::int64_t key_heads : {4, 2}) {
    for (const bool is_causal : {false, true}) {
      CAPTURE(key_heads);
      CAPTURE(is_causal);
      // The three inputs are parts of one tensor, as in GPT-2.
      const Tensor all = leaf({1, tokens, (4 + 2 * key_heads) * size});
      const std::vector<Tensor> parts =
          all.split_with_sizes({4 * size, key_heads * size, key_heads * size}, -1);
      const ops::KeyMask rows = ops::KeyMask::packed(lengths);
      const ops::AttentionHeads heads(4, key_heads, 0.3);
      const auto attend = [&] {
        return ops::attention(parts[0], parts[1], parts[2], is_causal ? rows.causal() : rows, heads,
                              0, /*training=*/true);
      };
      const Tensor expected = attend();
      const ops::PackedOperatorReplacement on_cpu(each_row_attention);
      const std::int64_t before = each_row_attention_calls;
      check_same(attend(), expected, {all}, 1e-5);
      CHECK(each_row_attention_calls == before + 1);
    }
  }
  CHECK_FALSE(ops::is_packed_operator_replaced());
  CHECK_THROWS_AS(ops::KeyMask::packed({3, 7}, at::zeros({2}, at::kInt)), c10::Error);
  CHECK_THROWS_AS(ops::KeyMask::packed({3, 7}, at::zeros({3}, at::kLong)), c10::Error);
}

// LibTorch's operators for packed rows do not take these.
TEST_CASE("ops: packed rows are padded if everything is dropped or a row has no tokens") {
  torch::manual_seed(13);
  const Tensor q = leaf({1, 8, 8}), k = leaf({1, 8, 8}), v = leaf({1, 8, 8});
  const ops::KeyMask with_empty_row = ops::KeyMask::packed({3, 0, 5});
  const Tensor expected = ops::attention(q, k, v, ops::KeyMask::packed({3, 5}), 2, 0, true);
  const ops::PackedOperatorReplacement on_cpu(each_row_attention);
  const std::int64_t before = each_row_attention_calls;
  check_same(ops::attention(q, k, v, with_empty_row, 2, 0, true), expected, {q, k, v}, 1e-5);
  const Tensor dropped = ops::attention(q, k, v, ops::KeyMask::packed({3, 5}), 2, 1, true);
  CHECK(dropped.count_nonzero().item<std::int64_t>() == 0);
  for (const Tensor& gradient : gradients(dropped, at::ones_like(dropped), {q, k, v}))
    CHECK(gradient.count_nonzero().item<std::int64_t>() == 0);
  CHECK(each_row_attention_calls == before);
  // Without training nothing is dropped. Rows may have one token.
  CHECK(distance(ops::attention(q, k, v, ops::KeyMask::packed({3, 5}), 2, 1, false), expected) <
        1e-5);
  const Tensor single =
      ops::attention(q, k, v, ops::KeyMask::packed({1, 1, 1, 1, 1, 1, 1, 1}), 2, 0, true);
  CHECK(distance(single, v) < 1e-6);
  CHECK(each_row_attention_calls == before + 2);
}

TEST_CASE("ops: attention without tokens has no numbers, and gradients without numbers") {
  for (const auto& [rows, queries] : {std::pair(0, 4), std::pair(2, 0), std::pair(1, 0)}) {
    CAPTURE(rows);
    CAPTURE(queries);
    const Tensor q = leaf({rows, queries, 8}), k = leaf({rows, queries, 4}),
                 v = leaf({rows, queries, 4});
    const ops::AttentionHeads heads(4, 2);
    const Tensor y = ops::attention(q, k, v, ops::KeyMask({}), heads, 0.1, true);
    CHECK(y.sizes() == q.sizes());
    for (const Tensor& gradient : gradients(y, at::ones_like(y), {q, k, v}))
      CHECK(gradient.numel() == 0);
    if (rows == 1) {
      const Tensor packed = ops::attention(q, k, v, ops::KeyMask::packed({0, 0}), heads, 0.1, true);
      CHECK(packed.sizes() == q.sizes());
    }
  }
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

}  // namespace ops_attention_test
