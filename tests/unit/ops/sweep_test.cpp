// Sweeps over all fused operators: types, autocast, empty tensors, strides, shapes, wrong
// arguments. Each operator is compared with the same formula in LibTorch's operators, in double.
#include <ATen/autocast_mode.h>
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <functional>
#include <thread>

#include "hasten/anatomy/dry_run.h"
#include "hasten/ops/ops.h"
#include "ops/kernels/kernels.h"
#include "unit/ops/swept_operators.h"

namespace ops_sweep_test {

using namespace hasten;
using at::Tensor;
using namespace hasten::ops_sweep;

TEST_CASE("ops sweep: every type gives the formula's values and gradients in its own type") {
  for (const SweptOperator& op : swept_operators()) {
    for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      for (const auto parameters : {type, at::kFloat}) {
        const bool mixed = parameters != type;
        // LibTorch's formulas refuse or promote other mixtures, which have their own test.
        if (mixed && (type != at::kBFloat16 || op.activations == 0)) continue;
        // For types without kernels, LibTorch makes the decisions of dropout.
        const bool has_kernels = type == at::kFloat || type == at::kBFloat16;
        if (op.drops &&
            !(has_kernels && (op.shapes.size() == op.activations || parameters == at::kFloat)))
          continue;
        CAPTURE(op.name);
        CAPTURE(type);
        CAPTURE(mixed);
        const Inputs in = as_leaves(swept_inputs(op, type, parameters)),
                     exact = as_leaves(in, at::kDouble);
        const Tensor y = op.fused(in), reference = op.formula(exact);
        CHECK(relative_distance(y, reference) <= tolerance_of(type));
        const Inputs gradients = first_derivatives(y, in);
        check_equal(gradients, first_derivatives(reference, exact), 2 * tolerance_of(type));
        for (std::size_t i = 0; i < in.size(); ++i)
          CHECK((gradients[i].scalar_type() == in[i].scalar_type()));
      }
    }
  }
}

TEST_CASE("ops sweep: linear accepts the types that at::linear accepts, except for bfloat16") {
  const auto succeeds = [](auto&& call) {
    try {
      call();
      return true;
    } catch (const c10::Error&) {
      return false;
    }
  };
  const auto types = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt};
  for (const auto x_type : types) {
    for (const auto weight_type : types) {
      for (const auto bias_type : types) {
        // Only hasten accepts activations in bfloat16 with float parameters.
        if (x_type == at::kBFloat16 && weight_type == at::kFloat) continue;
        CAPTURE(x_type);
        CAPTURE(weight_type);
        CAPTURE(bias_type);
        const Tensor x = at::ones({2, 3}).to(x_type), w = at::ones({4, 3}).to(weight_type),
                     b = at::ones({4}).to(bias_type);
        const bool fused = succeeds([&] { ops::linear(x, w, b); });
        CHECK(fused == succeeds([&] { at::linear(x, w, b); }));
        if (fused) CHECK((ops::linear(x, w, b).scalar_type() == at::linear(x, w, b).scalar_type()));
        CHECK(succeeds([&] { ops::linear(x, w, {}); }) == succeeds([&] { at::linear(x, w); }));
      }
    }
  }
}

TEST_CASE("ops sweep: autocast gives the formula's results, also with backward outside it") {
  for (const SweptOperator& op : swept_operators()) {
    for (const auto type : {at::kBFloat16, at::kHalf}) {
      for (const auto input_type : {at::kFloat, at::kBFloat16}) {
        // LibTorch handles mixtures of half and bfloat16.
        if (input_type == at::kBFloat16 && type == at::kHalf) continue;
        // Attention in half uses LibTorch's random numbers.
        if (type == at::kHalf && op.drops && op.forms_products) continue;
        const at::ScalarType expected_type = op.forms_products     ? type
                                             : op.activations == 0 ? at::kFloat
                                                                   : input_type;
        const Inputs from = swept_inputs(op, input_type, at::kFloat);
        const Inputs exact = as_leaves(from, at::kDouble);
        const Tensor reference = op.formula(exact);
        const Inputs expected = first_derivatives(reference, exact);
        for (const bool inside : {false, true}) {
          CAPTURE(op.name);
          CAPTURE(type);
          CAPTURE(input_type);
          CAPTURE(inside);
          const Inputs in = as_leaves(from);
          Tensor y;
          Inputs gradients;
          {
            const AutocastTo autocast(type);
            y = op.fused(in);
            if (inside) gradients = first_derivatives(y, in);
          }
          if (!inside) gradients = first_derivatives(y, in);
          CHECK((y.scalar_type() == expected_type));
          CHECK(relative_distance(y, reference) <= tolerance_of(type));
          check_equal(gradients, expected, 1.5 * tolerance_of(type));
        }
        // Autocast that begins after the forward pass changes nothing.
        const Inputs in = as_leaves(from);
        if (input_type != at::kFloat) continue;
        const Tensor y = op.fused(in);
        const AutocastTo autocast(type);
        check_equal(first_derivatives(y, in), expected, 2 * tolerance_of(at::kFloat));
      }
    }
  }
}

TEST_CASE("ops sweep: operands may be strided, transposed or expanded") {
  const auto strided = [](const Tensor& x) {
    return at::stack({x, x}, -1).flatten(-2).slice(-1, 0, c10::nullopt, 2);
  };
  const auto transposed = [](const Tensor& x) {
    return x.dim() < 2 ? x : x.transpose(0, 1).contiguous().transpose(0, 1);
  };
  const auto expanded = [](const Tensor& x) { return x.narrow(0, 0, 1).expand_as(x); };
  for (const SweptOperator& op : swept_operators()) {
    // LibTorch cannot pass a sparse gradient back through a view.
    if (op.name.find("sparse") != std::string::npos) continue;
    for (const auto& [name, view] :
         {std::pair<const char*, std::function<Tensor(const Tensor&)>>{"strided", strided},
          {"transposed", transposed},
          {"expanded", expanded}}) {
      CAPTURE(op.name);
      CAPTURE(name);
      const Inputs in = as_leaves(swept_inputs(op, at::kFloat, at::kFloat)),
                   exact = as_leaves(in, at::kDouble);
      const auto seen = [view = view](const Inputs& from) {
        Inputs out;
        for (const Tensor& x : from) out.push_back(view(x));
        return out;
      };
      const Tensor y = op.fused(seen(in)), reference = op.formula(seen(exact));
      CHECK(relative_distance(y, reference) <= 1e-5);
      check_equal(first_derivatives(y, in), first_derivatives(reference, exact), 2e-5);
    }
  }
}

TEST_CASE("ops sweep: empty tensors have empty results and gradients of zero") {
  const auto leaf = [](at::IntArrayRef shape) { return at::randn(shape).requires_grad_(); };
  const auto check_empty = [](const Tensor& y, const Tensor& like, const Inputs& in) {
    CHECK(y.sizes() == like.sizes());
    for (const Tensor& x : in) x.mutable_grad() = Tensor();
    y.sum().backward();
    for (const Tensor& x : in) {
      REQUIRE(x.grad().defined());
      CHECK(x.grad().sizes() == x.sizes());
      if (y.numel() == 0) CHECK(x.grad().ne(0).sum().item<std::int64_t>() == 0);
    }
  };
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{0, 5}, {3, 0}, {0, 0}, {2, 0, 5}, {2, 3, 0}, {0}, {5}}) {
    CAPTURE(shape);
    const std::int64_t n = shape.back();
    const Tensor x = leaf(shape), r = leaf(shape), b = leaf({n}), g = leaf({n}), e = leaf({n});
    for (const std::int64_t out : {4, 0}) {
      CAPTURE(out);
      const Tensor w = leaf({out, n}), wb = leaf({out});
      check_empty(ops::linear(x, w, wb), at::linear(x, w, wb), {x, w, wb});
      check_empty(ops::linear(x, w, {}), at::linear(x, w), {x, w});
      if (n == 0) {
        CHECK(at::equal(ops::linear(x, w, wb), at::linear(x, w, wb)));
      }
    }
    check_empty(ops::bias_gelu(x, b), x, {x, b});
    check_empty(ops::dropout(x, 0.5, true), x, {x});
    check_empty(ops::dropout_add_norm(x, b, r, g, e, 1e-5, 0.5, true), x, {x, b, r, g, e});
    const Tensor first =
        torch::autograd::grad({ops::linear(x, leaf({4, n}), {}).square().sum()}, {x}, {}, true,
                              /*create_graph=*/true)[0];
    CHECK(first.sizes() == x.sizes());
  }
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{0, 5, 4}, {2, 0, 4}, {2, 5, 0}}) {
    CAPTURE(shape);
    const Tensor q = leaf(shape), k = leaf(shape), v = leaf(shape);
    check_empty(ops::attention(q, k, v, ops::KeyMask({}), 2, 0.3, true), q, {q, k, v});
    const ops::KeyMask mask(at::zeros({shape[0], shape[1]}, at::kLong));
    check_empty(ops::attention(q, k, v, mask, 2, 0.3, true), q, {q, k, v});
    check_empty(ops::eager_attention(q, k, v, mask, 2, 0.3, true), q, {q, k, v});
  }
  for (const auto& [batch, length, n] :
       {std::array<std::int64_t, 3>{0, 3, 4}, {2, 0, 4}, {2, 3, 0}}) {
    CAPTURE(batch);
    CAPTURE(length);
    for (const bool sparse : {false, true}) {
      const Tensor word = leaf({9, n}), position = leaf({5, n}), type = leaf({2, n});
      const Tensor ids = at::zeros({batch, length}, at::kLong);
      check_empty(ops::embedding_sum(word, position, type, ids, {}, {}, -1, sparse),
                  at::zeros({batch, length, n}), {position, type});
      const Tensor y = ops::embedding_sum(word, position, type, ids, {}, {}, -1, sparse);
      CHECK(torch::autograd::grad({y.sum()}, {word}, {}, true, true)[0].sizes() == word.sizes());
    }
  }
}

TEST_CASE("ops sweep: results are the same without gradients and in other threads") {
  for (const SweptOperator& op : swept_operators()) {
    CAPTURE(op.name);
    const Inputs in = as_leaves(swept_inputs(op, at::kFloat, at::kFloat));
    const Tensor expected = op.fused(in);
    {
      const torch::NoGradGuard no_grad;
      const Tensor y = op.fused(in);
      CHECK(at::equal(y, expected));
      CHECK_FALSE(y.requires_grad());
    }
    {
      const c10::InferenceMode inference;
      const Tensor y = op.fused(in);
      CHECK(y.is_inference());
      CHECK(at::equal(y, expected));
    }
    const Inputs here = first_derivatives(expected, in);
    Inputs there;
    const Tensor again = op.fused(in);
    std::thread([&] { there = first_derivatives(again, in); }).join();
    check_equal(there, here, 1e-6);
  }
}

TEST_CASE("ops sweep: on the Meta device the results have the right shapes") {
  for (const SweptOperator& op : swept_operators()) {
    // In C++, LibTorch has no Meta kernels for the operators that the other cases use.
    if (op.activations != 1) continue;
    CAPTURE(op.name);
    Inputs in;
    for (const auto& shape : op.shapes) in.push_back(at::empty(shape, at::kMeta).requires_grad_());
    const Tensor y = op.fused(in);
    CHECK(y.is_meta());
    CHECK(y.sizes() == op.fused(swept_inputs(op, at::kFloat, at::kFloat)).sizes());
    for (const Tensor& gradient : torch::autograd::grad({y.sum()}, in)) CHECK(gradient.is_meta());
  }
}

TEST_CASE("ops sweep: a dry run has the shapes of results, first and second derivatives") {
  for (const SweptOperator& op : swept_operators()) {
    CAPTURE(op.name);
    const DryRun dry;
    Inputs in;
    for (const auto& shape : op.shapes) in.push_back(at::randn(shape).requires_grad_());
    const Tensor y = op.fused(in);
    for (const bool create_graph : {false, true}) {
      const Inputs first =
          torch::autograd::grad({y.square().sum()}, in, {}, /*retain_graph=*/true, create_graph);
      for (std::size_t i = 0; i < in.size(); ++i) CHECK(first[i].sizes() == in[i].sizes());
      if (!create_graph || first[0].is_sparse()) continue;
      const Tensor second = torch::autograd::grad({first[0].square().sum()}, {in[0]})[0];
      CHECK(second.sizes() == in[0].sizes());
    }
  }
}

TEST_CASE("ops sweep: arguments that do not fit are errors before any data is read") {
  const auto ones = [](at::IntArrayRef shape) { return at::ones(shape); };
  const ops::KeyMask everywhere({});
  const Tensor q = ones({2, 3, 8});
  for (const std::int64_t heads : {0, -1, 3})
    CHECK_THROWS_AS(ops::attention(q, q, q, everywhere, heads, 0, false), c10::Error);
  CHECK_THROWS_AS(ops::eager_attention(q, q, q, everywhere, 0, 0, false), c10::Error);
  CHECK_THROWS_AS(ops::attention(q, ones({2, 4, 8}), q, everywhere, 2, 0, false), c10::Error);
  CHECK_THROWS_AS(ops::attention(q, q.to(at::kDouble), q, everywhere, 2, 0, false), c10::Error);
  CHECK_THROWS_AS(ops::attention(q, q, q.to(at::kBFloat16), everywhere, 2, 0, false), c10::Error);
  CHECK_THROWS_AS(ops::attention(q, q, q, ops::KeyMask(at::zeros({1, 3})), 2, 0, false),
                  c10::Error);
  CHECK_THROWS_AS(ops::attention(q, q, q, ops::KeyMask(at::zeros({2, 2})), 2, 0, false),
                  c10::Error);
  for (const double p : {-0.1, 1.1, std::nan("")}) {
    CHECK_THROWS_AS(ops::dropout(q, p, true), c10::Error);
    CHECK_THROWS_AS(ops::attention(q, q, q, everywhere, 2, p, true), c10::Error);
    CHECK_THROWS_AS(ops::dropout_add_norm(q, ones({8}), q, ones({8}), ones({8}), 1e-5, p, true),
                    c10::Error);
  }
  CHECK_THROWS_AS(ops::linear(q, ones({4, 7}), {}), c10::Error);
  CHECK_THROWS_AS(ops::linear(q, ones({4, 8}), ones({3})), c10::Error);
  CHECK_THROWS_AS(ops::linear(at::ones({}), ones({4, 8}), {}), c10::Error);
  CHECK_THROWS_AS(ops::bias_gelu(q, ones({7})), c10::Error);
  CHECK_THROWS_AS(ops::dropout_add_norm(q, ones({8}), q, ones({8}), ones({7}), 1e-5, 0, false),
                  c10::Error);
  const Tensor ids = at::zeros({1, 4}, at::kLong);
  const auto sum = [&](at::IntArrayRef word, at::IntArrayRef position, at::IntArrayRef type) {
    return ops::embedding_sum(ones(word), ones(position), ones(type), ids, {}, {}, -1, false);
  };
  CHECK_NOTHROW(sum({10, 64}, {4, 64}, {2, 64}));
  CHECK_THROWS_AS(sum({10, 64}, {4, 2}, {2, 64}), c10::Error);
  CHECK_THROWS_AS(sum({10, 64}, {4, 64}, {2, 63}), c10::Error);
  CHECK_THROWS_AS(sum({10, 2}, {4, 64}, {2, 64}), c10::Error);
  CHECK_THROWS_AS(sum({10, 64}, {4, 64}, {0, 64}), c10::Error);
  CHECK_THROWS_AS(sum({10, 64}, {256}, {2, 64}), c10::Error);
  CHECK_THROWS_AS(ops::embedding_sum(ones({9, 4}), ones({9, 4}), ones({9, 4}), ids,
                                     ids.to(at::kFloat), {}, -1, false),
                  c10::Error);
}

TEST_CASE("ops sweep: a probability of 1 drops everything in training, else nothing") {
  const Tensor x = at::randn({3, 4, 8}).requires_grad_(), ones = at::ones({8}),
               zeros = at::zeros({8});
  const Tensor y = ops::dropout(x, 1.0, true);
  CHECK(y.ne(0).sum().item<std::int64_t>() == 0);
  y.sum().backward();
  CHECK(x.grad().ne(0).sum().item<std::int64_t>() == 0);
  CHECK(at::equal(ops::dropout(x, 1.0, false), x));
  const Tensor r = at::randn({3, 4, 8});
  CHECK(relative_distance(ops::dropout_add_norm(x, ones, r, ones, zeros, 1e-5, 1.0, true),
                          at::layer_norm(r, {8}, ones, zeros, 1e-5)) < 1e-5);
  CHECK(relative_distance(ops::dropout_add_norm(x, ones, r, ones, zeros, 1e-5, 1.0, false),
                          at::layer_norm(x + 1 + r, {8}, ones, zeros, 1e-5)) < 1e-5);
  const ops::KeyMask everywhere({});
  CHECK(ops::attention(x, x, x, everywhere, 2, 1.0, true).ne(0).sum().item<std::int64_t>() == 0);
  CHECK(relative_distance(ops::attention(x, x, x, everywhere, 2, 1.0, false),
                          ops::eager_attention(x, x, x, everywhere, 2, 1.0, false)) < 1e-5);
  // With a probability below 1, some elements are kept, and the expected value remains x.
  const ops::Dropout nearly = ops::Dropout::make(0.999999, 1);
  CHECK(nearly.threshold == 65535);
  CHECK(nearly.scale == 65536.0f);
}

TEST_CASE("ops sweep: both forms of attention agree on a row with nothing to attend to") {
  const Tensor q = at::randn({2, 3, 8}).requires_grad_();
  const ops::KeyMask mask(torch::tensor({{0, 0, 0}, {1, 1, 0}}));
  const Tensor fused = ops::attention(q, q, q, mask, 2, 0, false),
               eager = ops::eager_attention(q, q, q, mask, 2, 0, false);
  CHECK(fused[0].ne(0).sum().item<std::int64_t>() == 0);
  CHECK(relative_distance(eager, fused) < 1e-5);
  check_equal(first_derivatives(eager, {q}), first_derivatives(fused, {q}), 1e-5);
}

TEST_CASE("ops sweep: the norm of a row of equal values is 0 on every instruction set") {
  for (const ops::Kernels* set : ops::runnable_kernels()) {
    const std::string isa = set->isa;
    CAPTURE(isa);
    for (const std::int64_t n : {1, 7, 128, 768, 1000}) {
      CAPTURE(n);
      for (const float value : {0.1f, -3.3f, 12345.678f}) {
        const auto largest = [&](at::ScalarType type, auto kernels, auto* element) {
          using T = std::remove_pointer_t<decltype(element)>;
          const Tensor x = at::full({2, n}, value, type), zeros = at::zeros({2, n}, type),
                       y = at::full({2, n}, 9, type), z = at::empty({2, n}, type),
                       bias = at::zeros({n}), gamma = at::ones({n}), mean = at::empty({2}),
                       rstd = at::empty({2});
          const auto data_of = [](const Tensor& t) { return static_cast<T*>(t.data_ptr()); };
          kernels.dropout_add_norm(data_of(x), bias.const_data_ptr<float>(), data_of(zeros),
                                   gamma.const_data_ptr<float>(), bias.const_data_ptr<float>(),
                                   1e-12f, ops::Dropout{}, 0, data_of(z), data_of(y),
                                   mean.mutable_data_ptr<float>(), rstd.mutable_data_ptr<float>(),
                                   2, n);
          return y.to(at::kFloat).abs().max().item<double>();
        };
        CHECK(largest(at::kFloat, set->f32, static_cast<float*>(nullptr)) == 0);
        CHECK(largest(at::kBFloat16, set->b16, static_cast<ops::bf16*>(nullptr)) == 0);
      }
    }
  }
}

}  // namespace ops_sweep_test
