// Sweeps over all fused operators: types, autocast, empty tensors, strides, second derivatives,
// in-place changes. Each operator is compared with the same formula in LibTorch's operators, in
// double.
#include <ATen/autocast_mode.h>
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <functional>
#include <thread>

#include "hasten/anatomy/dry_run.h"
#include "hasten/ops/ops.h"
#include "ops/kernels/kernels.h"

namespace ops_sweep_test {

using namespace hasten;
using at::Tensor;

namespace {

using Inputs = std::vector<Tensor>;

struct SweptOperator {
  std::string name;
  std::vector<std::vector<std::int64_t>> shapes;
  std::size_t activations;  // the first inputs; the others are parameters
  std::function<Tensor(const Inputs&)> fused, formula;
  bool forms_products = false;  // so that autocast applies
  bool drops = false;
};

// The factors by which dropout multiplies; from the same seed an operator makes the same decisions.
Tensor decisions_for(at::IntArrayRef shape, double p) {
  torch::manual_seed(77);
  return ops::dropout(at::ones(shape), p, true).to(at::kDouble);
}

Tensor swept_attention(const Inputs& in, const Tensor& mask, std::int64_t heads,
                       const Tensor& decisions) {
  const auto split = [&](const Tensor& x) {
    return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
  };
  const double size = static_cast<double>(in[0].size(2) / heads);
  Tensor scores = at::matmul(split(in[0]), split(in[1]).transpose(2, 3)) / std::sqrt(size);
  Tensor p = at::softmax(scores, -1);
  if (mask.defined()) {
    const Tensor allowed = mask.to(at::kBool).view({mask.size(0), 1, 1, mask.size(1)});
    // A row without keys gives zeros.
    const Tensor row = allowed.any(-1, true);
    p = at::softmax(scores.masked_fill(allowed.logical_not().logical_and(row), -INFINITY), -1) *
        row;
  }
  if (decisions.defined()) p = p * decisions.view(p.sizes());
  return at::matmul(p, split(in[2])).transpose(1, 2).reshape(in[0].sizes());
}

std::vector<SweptOperator> swept_operators() {
  std::vector<SweptOperator> all;
  all.push_back({"linear",
                 {{2, 5, 6}, {7, 6}, {7}},
                 1,
                 [](const Inputs& in) { return ops::linear(in[0], in[1], in[2]); },
                 [](const Inputs& in) { return at::linear(in[0], in[1], in[2]); },
                 true});
  all.push_back({"linear without bias",
                 {{4, 6}, {7, 6}},
                 1,
                 [](const Inputs& in) { return ops::linear(in[0], in[1], {}); },
                 [](const Inputs& in) { return at::linear(in[0], in[1]); },
                 true});
  all.push_back({"linear_transposed",
                 {{2, 5, 6}, {6, 7}, {7}},
                 1,
                 [](const Inputs& in) { return ops::linear_transposed(in[0], in[1], in[2]); },
                 [](const Inputs& in) { return at::linear(in[0], in[1].t(), in[2]); },
                 true});
  all.push_back({"rms_norm",
                 {{3, 4, 20}, {20}},
                 1,
                 [](const Inputs& in) { return ops::rms_norm(in[0], in[1], 1e-5); },
                 [](const Inputs& in) {
                   return in[0] * (in[0].square().mean(-1, true) + 1e-5).rsqrt() * in[1];
                 }});
  all.push_back({"silu_multiply",
                 {{3, 4, 9}, {3, 4, 9}},
                 2,
                 [](const Inputs& in) { return ops::silu_multiply(in[0], in[1]); },
                 [](const Inputs& in) { return at::silu(in[0]) * in[1]; }});
  const Tensor angles = at::arange(12, at::kFloat).view({1, 4, 3});
  all.push_back(
      {"rotate",
       {{2, 4, 12}},
       1,
       [=](const Inputs& in) {
         const Tensor own = angles.to(in[0].device());
         return ops::rotate(in[0], own.cos(), own.sin());
       },
       [=](const Inputs& in) {
         const auto parts = in[0].view({2, 4, 2, 6}).chunk(2, -1);
         const Tensor cosine = angles.cos().unsqueeze(2).to(in[0].scalar_type()),
                      sine = angles.sin().unsqueeze(2).to(in[0].scalar_type());
         return at::cat({parts[0] * cosine - parts[1] * sine, parts[1] * cosine + parts[0] * sine},
                        -1)
             .view({2, 4, 12});
       }});
  all.push_back({"bias_gelu",
                 {{3, 4, 9}, {9}},
                 1,
                 [](const Inputs& in) { return ops::bias_gelu(in[0], in[1]); },
                 [](const Inputs& in) { return at::gelu(in[0] + in[1]); }});
  all.push_back(
      {"dropout",
       {{6, 20}},
       1,
       [](const Inputs& in) {
         torch::manual_seed(77);
         return ops::dropout(in[0], 0.4, true);
       },
       [decisions = decisions_for({6, 20}, 0.4)](const Inputs& in) { return in[0] * decisions; },
       false,
       true});
  for (const double p : {0.0, 0.4}) {
    all.push_back({p == 0 ? "dropout_add_norm of p 0" : "dropout_add_norm",
                   {{3, 4, 20}, {3, 4, 20}, {20}, {20}, {20}},
                   2,
                   [p](const Inputs& in) {
                     torch::manual_seed(77);
                     return ops::dropout_add_norm(in[0], in[2], in[1], in[3], in[4], 1e-5, p, true);
                   },
                   [decisions = decisions_for({3, 4, 20}, p)](const Inputs& in) {
                     return at::layer_norm((in[0] + in[2]) * decisions + in[1], {20}, in[3], in[4],
                                           1e-5);
                   },
                   false,
                   p > 0});
  }
  const Tensor mask = torch::tensor({{1, 1, 1, 0, 0}, {0, 0, 0, 0, 0}, {1, 0, 1, 1, 0}});
  for (const auto& [name, keys, p] : {std::tuple<const char*, Tensor, double>{"attention", {}, 0.0},
                                      {"attention, masked", mask, 0.0},
                                      {"attention, masked and dropped", mask, 0.3}}) {
    all.push_back({name,
                   {{3, 5, 8}, {3, 5, 8}, {3, 5, 8}},
                   3,
                   [keys = keys, p = p](const Inputs& in) {
                     torch::manual_seed(77);
                     return ops::attention(in[0], in[1], in[2], ops::KeyMask(keys), 2, p, true);
                   },
                   [keys = keys, decisions = p == 0 ? Tensor() : decisions_for({30, 5}, p)](
                       const Inputs& in) { return swept_attention(in, keys, 2, decisions); },
                   true,
                   p > 0});
  }
  // Three queries at the end of five keys, and two heads of queries for each of the keys.
  all.push_back(
      {"attention, causal",
       {{3, 3, 16}, {3, 5, 8}, {3, 5, 8}},
       3,
       [](const Inputs& in) {
         return ops::attention(in[0], in[1], in[2], ops::KeyMask({}).causal(), {4, 2}, 0, true);
       },
       [](const Inputs& in) {
         const auto split = [](const Tensor& x) {
           return x.view({3, x.size(1), -1, 4}).transpose(1, 2);
         };
         const Tensor keys = split(in[1]).repeat_interleave(2, 1),
                      values = split(in[2]).repeat_interleave(2, 1);
         const Tensor future = at::ones({3, 5}, at::kBool).triu(3);
         const Tensor p = at::softmax(
             (at::matmul(split(in[0]), keys.transpose(2, 3)) / 2.0).masked_fill(future, -INFINITY),
             -1);
         return at::matmul(p, values).transpose(1, 2).reshape({3, 3, 16});
       },
       true});
  const Tensor ids = torch::tensor({{1, 4, 7, 1}, {0, 7, 7, 2}}),
               types = torch::tensor({{0, 1, 1, 0}});
  for (const bool sparse : {false, true}) {
    all.push_back({sparse ? "embedding_sum, sparse" : "embedding_sum",
                   {{8, 3}, {6, 3}, {2, 3}},
                   0,
                   [=](const Inputs& in) {
                     return ops::embedding_sum(in[0], in[1], in[2], ids, {}, types, 7, sparse);
                   },
                   [=](const Inputs& in) {
                     return at::embedding(in[0], ids, 7) + in[1].narrow(0, 0, 4) +
                            at::embedding(in[2], types);
                   }});
  }
  return all;
}

// The values are exact in 16 bits, so that a type changes only the arithmetic.
Inputs swept_inputs(const SweptOperator& op, at::ScalarType activations,
                    at::ScalarType parameters) {
  torch::manual_seed(5);
  Inputs in;
  for (std::size_t i = 0; i < op.shapes.size(); ++i) {
    in.push_back((at::randn(op.shapes[i]) * 64)
                     .round()
                     .div(64)
                     .clamp(-3, 3)
                     .to(i < op.activations ? activations : parameters));
  }
  return in;
}

Inputs as_leaves(const Inputs& from, at::ScalarType type) {
  Inputs out;
  for (const Tensor& x : from) out.push_back(x.detach().to(type, false, true).requires_grad_());
  return out;
}
Inputs as_leaves(const Inputs& from) {
  Inputs out;
  for (const Tensor& x : from) out.push_back(x.detach().clone().requires_grad_());
  return out;
}

Tensor weights_like(const Tensor& y) {
  return at::linspace(-0.5, 2, y.numel(), at::kDouble).view(y.sizes());
}

Inputs first_derivatives(const Tensor& y, const Inputs& in) {
  const Tensor loss = (y.to(at::kDouble) * weights_like(y)).sum();
  return torch::autograd::grad({loss}, in);
}

double relative_distance(const Tensor& a, const Tensor& b) {
  const auto plain = [](const Tensor& x) {
    return (x.is_sparse() ? x.to_dense() : x).detach().to(at::kDouble);
  };
  if (b.numel() == 0) return a.sizes() == b.sizes() ? 0 : INFINITY;
  const Tensor difference = (plain(a) - plain(b)).abs().max();
  return difference.item<double>() / (0.1 + plain(b).abs().max().item<double>());
}

void check_equal(const Inputs& fused, const Inputs& reference, double tolerance) {
  REQUIRE(fused.size() == reference.size());
  for (std::size_t i = 0; i < fused.size(); ++i) {
    CAPTURE(i);
    CHECK(fused[i].sizes() == reference[i].sizes());
    CHECK(relative_distance(fused[i], reference[i]) <= tolerance);
  }
}

struct AutocastTo {
  explicit AutocastTo(at::ScalarType type) : before(at::autocast::get_autocast_dtype(at::kCPU)) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, type);
  }
  ~AutocastTo() {
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::set_autocast_dtype(at::kCPU, before);
    at::autocast::clear_cache();
  }
  at::ScalarType before;
};

double tolerance_of(at::ScalarType type) {
  return type == at::kDouble ? 1e-9 : type == at::kFloat ? 1e-5 : type == at::kHalf ? 1e-2 : 6e-2;
}

}  // namespace

TEST_CASE("ops sweep: every type gives the formula's values and gradients in its own type") {
  for (const SweptOperator& op : swept_operators()) {
    for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      for (const auto parameters : {type, at::kFloat}) {
        const bool mixed = parameters != type;
        // LibTorch's formulas refuse or promote other mixtures, which have their own test.
        if (mixed && (type != at::kBFloat16 || op.activations == 0)) continue;
        // LibTorch decides dropout for types without kernels.
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
        // LibTorch decides about mixtures of half and bfloat16.
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

TEST_CASE("ops sweep: second derivatives equal the formula's, for each choice of inputs") {
  const auto penalty_gradients = [](const Tensor& y, const Inputs& wanted) {
    const Tensor loss = (y.to(at::kDouble).square() * weights_like(y)).sum();
    const Inputs first = torch::autograd::grad({loss}, wanted, {}, true, /*create_graph=*/true);
    Tensor penalty = at::zeros({}, at::kDouble);
    for (const Tensor& each : first) {
      const Tensor dense = each.is_sparse() ? each.to_dense() : each;
      penalty = penalty + dense.to(at::kDouble).square().sum();
    }
    return torch::autograd::grad({penalty}, wanted, {}, true, false, /*allow_unused=*/true);
  };
  for (const SweptOperator& op : swept_operators()) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      const Inputs from = swept_inputs(op, type, at::kFloat);
      for (std::size_t choice = 1; choice < (std::size_t{1} << from.size()); ++choice) {
        CAPTURE(op.name);
        CAPTURE(type);
        CAPTURE(choice);
        Inputs in, exact, wanted, wanted_exact;
        for (std::size_t i = 0; i < from.size(); ++i) {
          const bool chosen = choice >> i & 1;
          in.push_back(from[i].detach().clone().requires_grad_(chosen));
          exact.push_back(from[i].detach().to(at::kDouble, false, true).requires_grad_(chosen));
          if (chosen) wanted.push_back(in.back());
          if (chosen) wanted_exact.push_back(exact.back());
        }
        const Inputs fused = penalty_gradients(op.fused(in), wanted),
                     reference = penalty_gradients(op.formula(exact), wanted_exact);
        for (std::size_t i = 0; i < fused.size(); ++i) {
          CAPTURE(i);
          const Tensor expected =
              reference[i].defined() ? reference[i] : at::zeros_like(wanted_exact[i]);
          const Tensor got = fused[i].defined() ? fused[i] : at::zeros_like(wanted[i]);
          CHECK(relative_distance(got, expected) <= (type == at::kFloat ? 1e-4 : 0.2));
        }
      }
    }
  }
}

TEST_CASE("ops sweep: a gradient penalty between two layers reaches the first layer's weight") {
  for (const SweptOperator& op : swept_operators()) {
    if (op.activations == 0) continue;
    CAPTURE(op.name);
    const Inputs from = swept_inputs(op, at::kFloat, at::kFloat);
    const auto gradient_of_weight = [&](const auto& call, at::ScalarType type) {
      Inputs in = as_leaves(from, type);
      const std::int64_t n = in[0].size(-1);
      const Tensor weight = at::linspace(-1, 1, n * n, type).view({n, n}).requires_grad_();
      const Tensor x = in[0];
      in[0] = at::tanh(at::matmul(x, weight));
      const Tensor first = torch::autograd::grad({call(in).square().sum()}, {x}, {}, true, true)[0];
      return torch::autograd::grad({(first.square().sum() - 1).square()}, {weight})[0];
    };
    CHECK(relative_distance(gradient_of_weight(op.fused, at::kFloat),
                            gradient_of_weight(op.formula, at::kDouble)) <= 1e-4);
  }
}

TEST_CASE("ops sweep: third derivatives equal the formula's") {
  const auto third = [](const auto& call, at::ScalarType type) {
    const Tensor x = at::linspace(-1, 1, 40, type).view({2, 20}).requires_grad_();
    Tensor y = call(x).pow(4).sum();
    for (int i = 0; i < 2; ++i)
      y = torch::autograd::grad({y}, {x}, {}, true, true)[0].square().sum();
    return torch::autograd::grad({y}, {x})[0];
  };
  const Tensor b = at::linspace(0, 1, 20), r = at::randn({2, 20});
  CHECK(relative_distance(third([&](const Tensor& x) { return ops::bias_gelu(x, b); }, at::kFloat),
                          third([&](const Tensor& x) { return at::gelu(x + b); }, at::kDouble)) <=
        1e-3);
  // at::layer_norm is no reference here: its third derivative is wrong in LibTorch 2.11, because
  // its second derivative treats the deviation of a row as a constant.
  const auto norm = [](const Tensor& z, const Tensor& gamma, const Tensor& beta) {
    const Tensor centred = z - z.mean(-1, true);
    return centred * (centred.square().mean(-1, true) + 1e-5).rsqrt() * gamma + beta;
  };
  CHECK(relative_distance(third(
                              [&](const Tensor& x) {
                                return ops::dropout_add_norm(x, b, r, b, b, 1e-5, 0, false);
                              },
                              at::kFloat),
                          third(
                              [&](const Tensor& x) {
                                const Tensor d = b.to(at::kDouble);
                                return norm(x + d + r, d, d);
                              },
                              at::kDouble)) <= 1e-3);
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

TEST_CASE("ops sweep: an in-place change of an input is detected or has no effect") {
  for (const SweptOperator& op : swept_operators()) {
    const Inputs from = swept_inputs(op, at::kFloat, at::kFloat);
    for (std::size_t changed = 0; changed < from.size(); ++changed) {
      CAPTURE(op.name);
      CAPTURE(changed);
      const auto gradients = [&](bool change) {
        const Inputs leaves = as_leaves(from);
        Inputs in;
        for (const Tensor& x : leaves) in.push_back(x * 1);
        const Tensor y = op.fused(in);
        if (change) in[changed].add_(1);
        return first_derivatives(y, leaves);
      };
      const Inputs expected = gradients(false);
      try {
        check_equal(gradients(true), expected, 0);
      } catch (const c10::Error& error) {
        CHECK(std::string(error.what()).find("inplace operation") != std::string::npos);
      }
    }
  }
}

TEST_CASE("ops sweep: a second backward pass needs retain_graph, and gives the same") {
  for (const SweptOperator& op : swept_operators()) {
    CAPTURE(op.name);
    const Inputs in = as_leaves(swept_inputs(op, at::kFloat, at::kFloat));
    const Tensor loss = op.fused(in).sum();
    const Inputs first = torch::autograd::grad({loss}, in, {}, /*retain_graph=*/true);
    check_equal(torch::autograd::grad({loss}, in, {}, /*retain_graph=*/false), first, 0);
    CHECK_THROWS_AS(torch::autograd::grad({loss}, in), c10::Error);
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
    // In C++, LibTorch has no Meta kernels for the operators of the others.
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
  // Below 1 some elements are kept, and the expectation stays that of x.
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
