// AdamW with weights and moments in bfloat16.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <sstream>
#include <vector>

#include "hasten/optim/adamw.h"
#include "ops/kernels/kernels.h"
#include "unit/code_of.h"
#include "unit/ops/adamw_options.h"

namespace optim_adamw_bfloat16_test {

using namespace hasten;
using at::Tensor;

namespace {

std::vector<Tensor> parameters(at::ScalarType type) {
  torch::manual_seed(1);
  std::vector<Tensor> all;
  for (const Tensor& each : {at::randn({300, 70}), at::randn({70}), at::randn({1})})
    all.push_back(each.to(type).requires_grad_());
  return all;
}

void set_gradients(const std::vector<Tensor>& all, int step) {
  torch::manual_seed(100 + step);
  for (const Tensor& each : all)
    each.mutable_grad() = at::randn(each.sizes()).to(each.scalar_type());
}

AdamWOptions bfloat16_options() { return AdamWOptions(1e-2).state_dtype(at::kBFloat16); }

double largest_difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    most = std::max(most, (a[i].to(at::kFloat) - b[i].to(at::kFloat)).abs().max().item<double>());
  return most;
}

bool same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  bool same = true;
  for (std::size_t i = 0; i < a.size(); ++i) same = same && at::equal(a[i], b[i]);
  return same;
}

}  // namespace

TEST_CASE("adamw bfloat16: steps follow those in float, in each combination of types") {
  struct Case {
    at::ScalarType weights, moments;
    double tolerance;
  };
  for (const Case& types :
       {Case{at::kBFloat16, at::kFloat, 0.1}, Case{at::kBFloat16, at::kBFloat16, 0.1},
        Case{at::kFloat, at::kBFloat16, 0.02}}) {
    const auto own = parameters(types.weights), plain = parameters(at::kFloat);
    AdamW adamw(own, AdamWOptions(1e-2).state_dtype(types.moments));
    AdamW reference(plain, AdamWOptions(1e-2));
    for (int step = 0; step < 30; ++step) {
      set_gradients(own, step);
      set_gradients(plain, step);
      adamw.step();
      reference.step();
    }
    CHECK(largest_difference(own, plain) < types.tolerance);
    for (const Tensor& each : own) {
      CHECK((each.scalar_type() == types.weights));
      const auto& state = static_cast<const torch::optim::AdamWParamState&>(
          *adamw.state().at(each.unsafeGetTensorImpl()));
      CHECK((state.exp_avg().scalar_type() == types.moments));
      CHECK((state.exp_avg_sq().scalar_type() == types.moments));
    }
  }
}

TEST_CASE("adamw bfloat16: small updates add up if rounding is stochastic, and vanish otherwise") {
  const auto mean_after = [](bool stochastic) {
    const Tensor w = at::ones({4096}, at::kBFloat16).requires_grad_();
    // The next bfloat16 below 1 is 1 - 1/256. A step of 1e-4 is about a 20th of half this distance.
    AdamW adamw({w}, AdamWOptions(1e-4).weight_decay(0).stochastic_rounding(stochastic));
    for (int step = 0; step < 200; ++step) {
      w.mutable_grad() = at::ones_like(w).detach();
      adamw.step();
    }
    return w.to(at::kFloat).mean().item<double>();
  };
  CHECK(mean_after(true) == doctest::Approx(1 - 200 * 1e-4).epsilon(1e-3));
  CHECK(mean_after(false) == 1);
}

TEST_CASE("adamw bfloat16: a mean of squares in bfloat16 decays as in float") {
  const Tensor w = at::zeros({4096}).requires_grad_();
  AdamW adamw({w}, AdamWOptions(1e-4).state_dtype(at::kBFloat16));
  w.mutable_grad() = at::ones_like(w).detach();
  adamw.step();
  for (int step = 0; step < 500; ++step) {
    w.mutable_grad() = at::zeros_like(w).detach();
    adamw.step();
  }
  const auto& state =
      static_cast<const torch::optim::AdamWParamState&>(*adamw.state().at(w.unsafeGetTensorImpl()));
  CHECK(state.exp_avg_sq().to(at::kFloat).mean().item<double>() ==
        doctest::Approx(0.001 * std::pow(0.999, 500)).epsilon(0.01));
}

TEST_CASE("adamw bfloat16: the same seed gives the same bits for any number of threads") {
  const auto train = [](std::int64_t seed, int threads) {
    const int before = at::get_num_threads();
    at::set_num_threads(threads);
    torch::manual_seed(1);
    std::vector<Tensor> all = {at::randn({500, 300}).to(at::kBFloat16).requires_grad_()};
    AdamW adamw(all, bfloat16_options().rounding_seed(seed));
    for (int step = 0; step < 3; ++step) {
      set_gradients(all, step);
      adamw.step();
    }
    at::set_num_threads(before);
    return all;
  };
  CHECK(same_bits(train(5, 1), train(5, 3)));
  CHECK_FALSE(same_bits(train(5, 1), train(6, 1)));
}

TEST_CASE("adamw bfloat16: two parameters of one value are rounded differently") {
  std::vector<Tensor> equal_weights;
  for (int i = 0; i < 2; ++i)
    equal_weights.push_back(at::ones({4096}, at::kBFloat16).requires_grad_());
  AdamW adamw(equal_weights, AdamWOptions(1e-3));
  for (const Tensor& each : equal_weights) each.mutable_grad() = at::ones_like(each).detach();
  adamw.step();
  CHECK_FALSE(at::equal(equal_weights[0], equal_weights[1]));
}

TEST_CASE("adamw bfloat16: a sparse gradient gives the same bits as the dense one") {
  const auto tables = parameters(at::kBFloat16), others = parameters(at::kBFloat16);
  AdamW sparse({tables[0]}, bfloat16_options().weight_decay(0.1)),
      dense({others[0]}, bfloat16_options().weight_decay(0.1));
  for (int step = 0; step < 20; ++step) {
    torch::manual_seed(step);
    const Tensor rows = std::get<0>(at::_unique(at::randint(0, 200, {9})));
    Tensor gradient = at::zeros({300, 70}, at::kBFloat16);
    gradient.index_copy_(0, rows, at::randn({rows.size(0), 70}).to(at::kBFloat16));
    others[0].mutable_grad() = gradient;
    tables[0].mutable_grad() =
        at::sparse_coo_tensor(rows.unsqueeze(0), gradient.index_select(0, rows), {300, 70});
    sparse.step();
    dense.step();
  }
  CHECK(at::equal(tables[0], others[0]));
}

TEST_CASE("adamw bfloat16: a saved optimizer continues with the same bits and options") {
  const auto train = [](bool reloads) {
    const auto all = parameters(at::kBFloat16);
    auto adamw = std::make_unique<AdamW>(all, bfloat16_options().rounding_seed(9));
    for (int step = 0; step < 6; ++step) {
      if (reloads && step == 3) {
        std::stringstream bytes;
        torch::serialize::OutputArchive out;
        adamw->save(out);
        out.save_to(bytes);
        adamw = std::make_unique<AdamW>(all, AdamWOptions());
        torch::serialize::InputArchive in;
        in.load_from(bytes);
        adamw->load(in);
        const auto& options = static_cast<const AdamWOptions&>(adamw->param_groups()[0].options());
        CHECK((options.state_dtype() == at::kBFloat16));
        CHECK(options.rounding_seed() == 9);
      }
      set_gradients(all, step);
      adamw->step();
    }
    return all;
  };
  CHECK(same_bits(train(false), train(true)));
}

TEST_CASE("adamw bfloat16: groups with options of LibTorch's keep them, with the defaults' types") {
  const auto all = parameters(at::kBFloat16);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<Tensor>{all[0]},
                      std::make_unique<torch::optim::AdamWOptions>(0.5));
  groups.emplace_back(std::vector<Tensor>{all[1]}, bfloat16_options().weight_decay(0.25).clone());
  AdamW adamw(groups, bfloat16_options());
  const auto options = [&](std::size_t i) {
    return static_cast<const AdamWOptions&>(adamw.param_groups()[i].options());
  };
  CHECK(options(0).lr() == 0.5);
  CHECK((options(0).state_dtype() == at::kBFloat16));
  CHECK(options(1).weight_decay() == 0.25);
}

TEST_CASE("adamw bfloat16: other types are refused") {
  const Tensor half = at::ones({2}, at::kHalf).requires_grad_();
  CHECK(code_of([&] { AdamW adamw({half}); }) == "optim.dtype");
  CHECK(code_of([&] { AdamWOptions().state_dtype(at::kHalf); }) == "optim.dtype");
}

TEST_CASE("adamw bfloat16: every set of instructions gives the same bits") {
  constexpr ops::Index kCount = 1000, kFirst = 77;  // neither is a multiple of a vector's width
  torch::manual_seed(2);
  const Tensor start = at::randn({kCount}), gradient = at::randn({kCount});
  const ops::AdamW how = ops::adamw_options({.gradient_scale = 0.7f});
  const ops::Rounding rounding = {.stochastic = true, .seed = 3, .step = 4};
  std::vector<std::vector<Tensor>> results;
  for (const ops::Kernels* const set : ops::runnable_kernels()) {
    const auto copy = [&](const Tensor& x, at::ScalarType type) { return x.to(type).clone(); };
    const auto data = [](const Tensor& x) { return static_cast<ops::bf16*>(x.data_ptr()); };
    const Tensor w = copy(start, at::kBFloat16), g = copy(gradient, at::kBFloat16),
                 m = copy(start, at::kBFloat16), v = copy(start.abs(), at::kBFloat16);
    set->adamw_b16_b16(data(w), data(g), data(m), data(v), how, rounding, kFirst, kCount);
    const Tensor m2 = copy(start, at::kFloat), v2 = copy(start.abs(), at::kFloat);
    set->adamw_b16_f32(data(w), data(g), m2.data_ptr<float>(), v2.data_ptr<float>(), how, rounding,
                       kFirst, kCount);
    const Tensor w2 = copy(start, at::kFloat), g2 = copy(gradient, at::kFloat);
    set->adamw_f32_b16(w2.data_ptr<float>(), g2.data_ptr<float>(), data(m), data(v), how, rounding,
                       kFirst, kCount);
    set->decay_b16(data(g), 0.99f, rounding, kFirst, kCount);
    results.push_back({w, g, m, v, m2, v2, w2});
  }
  for (const auto& each : results) CHECK(same_bits(each, results.front()));
}

TEST_CASE("adamw bfloat16: the place of an element decides its random numbers, not the range") {
  constexpr ops::Index kCount = 600;
  torch::manual_seed(2);
  const Tensor start = at::randn({kCount}).to(at::kBFloat16);
  const ops::Rounding rounding = {.stochastic = true, .seed = 3, .step = 4};
  const auto decay = [&](const std::vector<ops::Index>& ends) {
    const Tensor x = start.clone();
    ops::Index at = 0;
    for (const ops::Index end : ends) {
      ops::kernels().decay_b16(static_cast<ops::bf16*>(x.data_ptr()) + at, 0.9f, rounding, at,
                               end - at);
      at = end;
    }
    return x;
  };
  CHECK(at::equal(decay({kCount}), decay({1, 130, 256, 300, kCount})));
}

}  // namespace optim_adamw_bfloat16_test
