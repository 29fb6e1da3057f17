// The fused operators, each with the same formula in LibTorch's operators.
//
//   for (const SweptOperator& op : swept_operators()) compare(op.fused, op.formula);
#pragma once

#include <ATen/autocast_mode.h>
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <functional>

#include "hasten/ops/ops.h"

namespace hasten::ops_sweep {

using at::Tensor;

using Inputs = std::vector<Tensor>;

struct SweptOperator {
  std::string name;
  std::vector<std::vector<std::int64_t>> shapes;
  std::size_t activations;  // the first inputs; the others are parameters
  std::function<Tensor(const Inputs&)> fused, formula;
  bool forms_products = false;  // so that autocast applies
  bool drops = false;
};

// Returns the factors by which dropout multiplies. An operator makes the same decisions from the
// same seed.
inline Tensor decisions_for(at::IntArrayRef shape, double p) {
  torch::manual_seed(77);
  return ops::dropout(at::ones(shape), p, true).to(at::kDouble);
}

inline Tensor swept_attention(const Inputs& in, const Tensor& mask, std::int64_t heads,
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

inline std::vector<SweptOperator> swept_operators() {
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
  // There are three queries at the end of five keys, and two query heads for each key head.
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
inline Inputs swept_inputs(const SweptOperator& op, at::ScalarType activations,
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

inline Inputs as_leaves(const Inputs& from, at::ScalarType type) {
  Inputs out;
  for (const Tensor& x : from) out.push_back(x.detach().to(type, false, true).requires_grad_());
  return out;
}
inline Inputs as_leaves(const Inputs& from) {
  Inputs out;
  for (const Tensor& x : from) out.push_back(x.detach().clone().requires_grad_());
  return out;
}

inline Tensor weights_like(const Tensor& y) {
  return at::linspace(-0.5, 2, y.numel(), at::kDouble).view(y.sizes());
}

inline Inputs first_derivatives(const Tensor& y, const Inputs& in) {
  const Tensor loss = (y.to(at::kDouble) * weights_like(y)).sum();
  return torch::autograd::grad({loss}, in);
}

inline double relative_distance(const Tensor& a, const Tensor& b) {
  const auto plain = [](const Tensor& x) {
    return (x.is_sparse() ? x.to_dense() : x).detach().to(at::kDouble);
  };
  if (b.numel() == 0) return a.sizes() == b.sizes() ? 0 : INFINITY;
  const Tensor difference = (plain(a) - plain(b)).abs().max();
  return difference.item<double>() / (0.1 + plain(b).abs().max().item<double>());
}

inline void check_equal(const Inputs& fused, const Inputs& reference, double tolerance) {
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

inline double tolerance_of(at::ScalarType type) {
  return type == at::kDouble ? 1e-9 : type == at::kFloat ? 1e-5 : type == at::kHalf ? 1e-2 : 6e-2;
}

}  // namespace hasten::ops_sweep
