#include "hasten/optim/adamw.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include "hasten/base/error.h"

using namespace hasten;
using at::Tensor;
using torch::optim::AdamWOptions;

namespace {

std::vector<Tensor> parameters(std::uint64_t seed) {
  torch::manual_seed(seed);
  return {at::randn({300, 70}).requires_grad_(), at::randn({70}).requires_grad_(),
          at::randn({1}).requires_grad_()};
}

}  // namespace

TEST_CASE("adamw: equals LibTorch's AdamW over 20 steps, with and without decay") {
  for (const double decay : {0.0, 0.1}) {
    auto a = parameters(1), b = parameters(1);
    const AdamWOptions options =
        AdamWOptions(1e-2).betas({0.8, 0.95}).eps(1e-7).weight_decay(decay);
    AdamW ours(a, options);
    torch::optim::AdamW theirs(b, options);
    for (int step = 0; step < 20; ++step) {
      for (std::size_t i = 0; i < a.size(); ++i) {
        a[i].mutable_grad() = at::randn_like(a[i]).detach();
        b[i].mutable_grad() = a[i].grad().clone();
      }
      ours.step();
      theirs.step();
    }
    for (std::size_t i = 0; i < a.size(); ++i)
      CHECK((a[i] - b[i]).abs().max().item<double>() < 2e-6);
  }
}

TEST_CASE(
    "adamw: a sparse gradient gives bit for bit what the dense one gives, also with decay and "
    "mixed with dense steps") {
  for (const double decay : {0.0, 0.1}) {
    auto a = parameters(2), b = parameters(2);
    const AdamWOptions options = AdamWOptions(1e-2).weight_decay(decay);
    AdamW sparse(a, options), dense(b, options);
    for (int step = 0; step < 30; ++step) {
      Tensor gradient = at::zeros({300, 70});
      const Tensor rows = std::get<0>(at::_unique(at::randint(0, 300, {9})));
      gradient.index_copy_(0, rows, at::randn({rows.size(0), 70}));
      b[0].mutable_grad() = gradient;
      a[0].mutable_grad() =
          step == 15
              ? gradient.clone()
              : at::sparse_coo_tensor(rows.unsqueeze(0), gradient.index_select(0, rows), {300, 70});
      sparse.step();
      dense.step();
    }
    CHECK(at::equal(a[0], b[0]));
  }
}

TEST_CASE("adamw: repeated rows of an uncoalesced gradient are added up") {
  auto a = parameters(3), b = parameters(3);
  AdamW sparse(a), dense(b);
  const Tensor rows = at::tensor({5, 5, 7}, at::kLong), values = at::randn({3, 70});
  a[0].mutable_grad() = at::sparse_coo_tensor(rows.unsqueeze(0), values, {300, 70});
  b[0].mutable_grad() = a[0].grad().to_dense();
  sparse.step();
  dense.step();
  CHECK(at::equal(a[0], b[0]));
}

TEST_CASE("adamw: scale_next_step equals scaling the gradients, for one step only") {
  auto a = parameters(4), b = parameters(4);
  AdamW ours(a), other(b);
  for (int step = 0; step < 3; ++step) {
    a[0].mutable_grad() = at::randn_like(a[0]).detach();
    b[0].mutable_grad() = step == 1 ? (a[0].grad() * 0.25f) : a[0].grad().clone();
    if (step == 1) ours.scale_next_step(0.25);
    ours.step();
    other.step();
  }
  CHECK((a[0] - b[0]).abs().max().item<double>() < 1e-7);
}

TEST_CASE("adamw: clip_grad_norm_ agrees with LibTorch's and counts sparse gradients") {
  auto a = parameters(5), b = parameters(5);
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i].mutable_grad() = at::randn_like(a[i]).detach();
    b[i].mutable_grad() = a[i].grad().clone();
  }
  const double ours = clip_grad_norm_(a, 1.0), theirs = torch::nn::utils::clip_grad_norm_(b, 1.0);
  CHECK(ours == doctest::Approx(theirs).epsilon(1e-5));
  CHECK((a[0].grad() - b[0].grad()).abs().max().item<double>() < 1e-8);
  CHECK(gradient_norm(a, INFINITY) ==
        doctest::Approx(std::max({a[0].grad().abs().max().item<double>(),
                                  a[1].grad().abs().max().item<double>(),
                                  a[2].grad().abs().max().item<double>()})));
  const Tensor dense = at::zeros({300, 70});
  dense[3].fill_(2);
  a[0].mutable_grad() = dense.to_sparse(1);
  b[0].mutable_grad() = dense;
  CHECK(gradient_norm({a[0]}) == doctest::Approx(gradient_norm({b[0]})));
  clip_grad_norm_({a[0]}, 1.0);
  CHECK(gradient_norm({a[0]}) == doctest::Approx(1.0).epsilon(1e-4));
}

TEST_CASE("adamw: amsgrad and parameters that are not float are refused") {
  CHECK_THROWS_AS(AdamW(parameters(6), AdamWOptions(1e-3).amsgrad(true)), UsageError);
  CHECK_THROWS_AS(AdamW(std::vector<Tensor>{at::zeros({3}, at::kBFloat16)}), UsageError);
}
