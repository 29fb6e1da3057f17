#include "hasten/optim/grad_scaler.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/optim/adamw.h"
#include "unit/code_of.h"

namespace optim_grad_scaler_test {

using namespace hasten;
using at::Tensor;

namespace {

Tensor weight() { return at::ones({4}).requires_grad_(); }

// Gives the weight a gradient of `value` times the scale.
void backward(const GradScaler& scaler, const Tensor& w, double value) {
  scaler.scale((w * value).sum()).backward();
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("grad scaler: gradients are divided once, and a skipped step changes nothing") {
  const Tensor w = weight();
  torch::optim::SGD sgd({w}, torch::optim::SGDOptions(1.0));
  GradScaler scaler;
  CHECK(scaler.get_scale() == 65536);
  backward(scaler, w, 3);
  CHECK(w.grad()[0].item<double>() == 3 * 65536);
  scaler.unscale_(sgd);
  CHECK(w.grad()[0].item<double>() == 3);
  CHECK(scaler.step(sgd));
  CHECK(w[0].item<double>() == -2);
  scaler.update();
  sgd.zero_grad();
  backward(scaler, w, kInfinity);
  CHECK_FALSE(scaler.step(sgd));
  CHECK(w[0].item<double>() == -2);
  scaler.update();
  CHECK(scaler.get_scale() == 32768);
  scaler.update(8.0);
  CHECK(scaler.get_scale() == 8);
}

TEST_CASE("grad scaler: a sparse gradient with repeated rows is divided as it is") {
  const Tensor table = at::zeros({6, 2}).requires_grad_();
  torch::optim::SGD sgd({table}, torch::optim::SGDOptions(1.0));
  GradScaler scaler({.init_scale = 4});
  const Tensor ids = torch::tensor({1, 3, 1}, at::kLong);
  scaler.scale(at::embedding(table, ids, -1, false, /*sparse=*/true).sum()).backward();
  REQUIRE(table.grad().is_sparse());
  CHECK(scaler.step(sgd));
  CHECK(table.grad().is_sparse());
  CHECK(table[1][0].item<double>() == -2);
  CHECK(table[3][1].item<double>() == -1);
}

TEST_CASE("grad scaler: gradients of two tables that share their values are divided once each") {
  const Tensor ids = torch::tensor({1, 3, 4}, at::kLong), places = torch::arange(3);
  const Tensor weights = at::rand({3, 2});
  for (const bool has_two_optimizers : {false, true}) {
    CAPTURE(has_two_optimizers);
    const Tensor words = at::zeros({6, 2}).requires_grad_(),
                 positions = at::zeros({6, 2}).requires_grad_();
    GradScaler scaler({.init_scale = 1024});
    const Tensor sum = at::embedding(words, ids, -1, false, /*sparse=*/true) +
                       at::embedding(positions, places, -1, false, /*sparse=*/true);
    scaler.scale((sum * weights).sum()).backward();
    REQUIRE(words.grad()._values().is_alias_of(positions.grad()._values()));
    std::vector<Tensor> first = {words};
    if (!has_two_optimizers) first.push_back(positions);
    torch::optim::SGD sgd(first, torch::optim::SGDOptions(1.0)),
        other({positions}, torch::optim::SGDOptions(1.0));
    scaler.unscale_(sgd);
    if (has_two_optimizers) scaler.unscale_(other);
    CHECK(at::equal(words.grad().to_dense(), at::zeros({6, 2}).index_add(0, ids, weights)));
    CHECK(at::equal(positions.grad().to_dense(), at::zeros({6, 2}).index_add(0, places, weights)));
  }
}

TEST_CASE("grad scaler: a loss of 16 bits is scaled in float") {
  const Tensor loss = at::full({}, 3, at::kHalf);
  const Tensor scaled = GradScaler().scale(loss);
  CHECK((scaled.scalar_type() == at::kFloat));
  CHECK(scaled.item<double>() == 3 * 65536);
}

TEST_CASE("grad scaler: calls in another order and gradients in float16 are refused") {
  const Tensor w = weight();
  torch::optim::SGD sgd({w}, torch::optim::SGDOptions(1.0));
  GradScaler scaler;
  CHECK(code_of([&] { scaler.step(sgd); }) == "optim.grad-scaler");
  CHECK(code_of([&] { scaler.update(); }) == "optim.grad-scaler");
  backward(scaler, w, 1);
  scaler.unscale_(sgd);
  CHECK(code_of([&] { scaler.unscale_(sgd); }) == "optim.grad-scaler");
  scaler.step(sgd);
  CHECK(code_of([&] { scaler.step(sgd); }) == "optim.grad-scaler");
  CHECK(code_of([&] { scaler.unscale_(sgd); }) == "optim.grad-scaler");
  const Tensor half = at::ones({2}, at::kHalf).requires_grad_();
  half.mutable_grad() = at::ones({2}, at::kHalf);
  torch::optim::SGD of_half({half}, torch::optim::SGDOptions(1.0));
  CHECK(code_of([&] { scaler.unscale_(of_half); }) == "optim.fp16-gradient");
}

TEST_CASE("grad scaler: a scale below min_scale ends the run") {
  const Tensor w = weight();
  torch::optim::SGD sgd({w}, torch::optim::SGDOptions(1.0));
  GradScaler scaler;
  int skipped = 0;
  const auto train = [&] {
    for (; skipped < 100; ++skipped) {
      backward(scaler, w, kInfinity);
      scaler.step(sgd);
      scaler.update();
      sgd.zero_grad();
    }
  };
  CHECK_THROWS_AS(train(), DivergedError);
  CHECK(skipped == 29);  // 2^16 / 2^30 is the first scale below 1e-4
  CHECK(w[0].item<double>() == 1);
  GradScaler endless({.min_scale = 0});
  for (int i = 0; i < 40; ++i) {
    backward(endless, w, kInfinity);
    endless.step(sgd);
    endless.update();
  }
  CHECK(endless.get_scale() < 1e-6);
}

TEST_CASE("grad scaler: options out of their range are refused") {
  for (const GradScalerKwargs& options :
       {GradScalerKwargs{.init_scale = 0}, GradScalerKwargs{.init_scale = 1e39},
        GradScalerKwargs{.growth_factor = 1}, GradScalerKwargs{.backoff_factor = 1},
        GradScalerKwargs{.backoff_factor = 0}, GradScalerKwargs{.growth_interval = 0},
        GradScalerKwargs{.min_scale = -1}, GradScalerKwargs{.init_scale = 1e-60}})
    CHECK(code_of([&] { GradScaler scaler(options); }) == "optim.grad-scaler-option");
}

TEST_CASE(
    "grad scaler: invalid scales and options that are set later are refused and change nothing") {
  GradScaler scaler;
  for (const double scale : {0.0, -1.0, 1e39, 1e-60, kInfinity, std::nan("")})
    CHECK(code_of([&] { scaler.update(scale); }) == "optim.grad-scaler-option");
  CHECK(scaler.get_scale() == 65536);
  CHECK(code_of([&] { scaler.set_growth_factor(1); }) == "optim.grad-scaler-option");
  CHECK(code_of([&] { scaler.set_backoff_factor(1.5); }) == "optim.grad-scaler-option");
  CHECK(code_of([&] { scaler.set_growth_interval(0); }) == "optim.grad-scaler-option");
  CHECK(scaler.get_growth_factor() == 2);
  CHECK(scaler.get_backoff_factor() == 0.5);
  CHECK(scaler.get_growth_interval() == 2000);
}

TEST_CASE("grad scaler: a scaler that is not enabled does nothing") {
  const Tensor w = weight();
  torch::optim::SGD sgd({w}, torch::optim::SGDOptions(1.0));
  GradScaler scaler({.enabled = false});
  CHECK(scaler.get_scale() == 1);
  CHECK(scaler.state_dict().empty());
  backward(scaler, w, 2);
  scaler.unscale_(sgd);
  CHECK(scaler.step(sgd));
  scaler.update();
  CHECK(w[0].item<double>() == -1);
}

TEST_CASE("grad scaler: a loaded state continues, and a state without a number is refused") {
  const Tensor w = weight();
  torch::optim::SGD sgd({w}, torch::optim::SGDOptions(0.0));
  GradScaler scaler({.growth_interval = 3});
  const auto update = [&](GradScaler& each) {
    backward(each, w, 1);
    each.step(sgd);
    each.update();
    sgd.zero_grad();
  };
  update(scaler);
  update(scaler);
  GradScaler loaded({.init_scale = 2});
  loaded.load_state_dict(scaler.state_dict());
  update(loaded);
  CHECK(loaded.get_scale() == 2 * 65536);
  TensorDict partial = scaler.state_dict();
  partial.erase("scale");
  CHECK(code_of([&] { loaded.load_state_dict(partial); }) == "optim.grad-scaler-state");
  CHECK(code_of([&] { loaded.load_state_dict({}); }) == "optim.grad-scaler-state");
}

TEST_CASE("grad scaler: a state that is refused changes nothing") {
  GradScaler scaler;
  TensorDict state = GradScaler({.init_scale = 8, .growth_factor = 4}).state_dict();
  const auto with = [&](const char* name, const Tensor& value) {
    TensorDict changed = state;
    changed[name] = value;
    return changed;
  };
  const auto number = [](double value) { return at::scalar_tensor(value, at::kDouble); };
  for (const TensorDict& bad :
       {with("scale", number(0)), with("scale", number(std::nan(""))),
        with("growth_interval", number(std::nan(""))), with("growth_interval", number(-1)),
        with("_growth_tracker", number(0.5)), with("_growth_tracker", at::ones({2})),
        with("backoff_factor", number(2))}) {
    CHECK(code_of([&] { scaler.load_state_dict(bad); }) == "optim.grad-scaler-state");
    CHECK(scaler.get_scale() == 65536);
    CHECK(scaler.get_growth_factor() == 2);
  }
}

}  // namespace optim_grad_scaler_test
