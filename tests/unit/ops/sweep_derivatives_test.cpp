// Sweeps over all fused operators: second and third derivatives, and repeated backward passes. Each
// is compared with the same formula in double.
#include <ATen/autocast_mode.h>
#include <doctest/doctest.h>
#include <torch/torch.h>

#include "hasten/ops/ops.h"
#include "unit/ops/swept_operators.h"

namespace ops_sweep_derivatives_test {

using namespace hasten;
using at::Tensor;
using namespace hasten::ops_sweep;

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
  // at::layer_norm cannot be the reference here: its third derivative is wrong in LibTorch 2.11,
  // because its second derivative treats the deviation of a row as a constant.
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

}  // namespace ops_sweep_derivatives_test
