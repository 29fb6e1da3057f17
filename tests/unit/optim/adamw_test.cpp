#include "hasten/optim/adamw.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <sstream>

#include "hasten/base/error.h"
#include "unit/code_of.h"

namespace optim_adamw_test {

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

TEST_CASE("adamw: it equals LibTorch's AdamW over 20 steps, with and without decay") {
  for (const double decay : {0.0, 0.1}) {
    auto a = parameters(1), b = parameters(1);
    const AdamWOptions options =
        AdamWOptions(1e-2).betas({0.8, 0.95}).eps(1e-7).weight_decay(decay);
    AdamW adamw(a, options);
    torch::optim::AdamW reference(b, options);
    for (int step = 0; step < 20; ++step) {
      for (std::size_t i = 0; i < a.size(); ++i) {
        a[i].mutable_grad() = at::randn_like(a[i]).detach();
        b[i].mutable_grad() = a[i].grad().clone();
      }
      adamw.step();
      reference.step();
    }
    for (std::size_t i = 0; i < a.size(); ++i)
      CHECK((a[i] - b[i]).abs().max().item<double>() < 2e-6);
  }
}

TEST_CASE("adamw: parameters in double have moments in double, and equal LibTorch's AdamW") {
  auto a = parameters(1), b = parameters(1);
  for (const std::size_t i : {std::size_t{0}, std::size_t{2}}) {  // the second one stays in float
    a[i] = a[i].detach().to(at::kDouble).requires_grad_();
    b[i] = b[i].detach().to(at::kDouble).requires_grad_();
  }
  const AdamWOptions options = AdamWOptions(1e-2).betas({0.8, 0.95}).weight_decay(0.1);
  AdamW adamw(a, options);
  torch::optim::AdamW reference(b, options);
  for (int step = 0; step < 20; ++step) {
    for (std::size_t i = 0; i < a.size(); ++i) {
      a[i].mutable_grad() = at::randn_like(a[i]).detach();
      b[i].mutable_grad() = a[i].grad() * 0.3;
    }
    if (step == 5) a[0].mutable_grad() = a[0].grad().to_sparse(1);
    adamw.scale_next_step(0.3);
    adamw.step();
    reference.step();
  }
  CHECK((a[0] - b[0]).abs().max().item<double>() < 1e-12);
  CHECK((a[1] - b[1]).abs().max().item<double>() < 2e-6);
  CHECK((a[2] - b[2]).abs().max().item<double>() < 1e-12);
  const auto& state = static_cast<const torch::optim::AdamWParamState&>(
      *adamw.state().at(a[0].unsafeGetTensorImpl()));
  CHECK((state.exp_avg().scalar_type() == at::kDouble));
  CHECK((state.exp_avg_sq().scalar_type() == at::kDouble));
  CHECK(state.step() == 20);
}

TEST_CASE("adamw: a sparse gradient gives the same bits as the dense one") {
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

TEST_CASE("adamw: repeated rows of an uncoalesced gradient are added") {
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
  AdamW adamw(a), other(b);
  for (int step = 0; step < 3; ++step) {
    a[0].mutable_grad() = at::randn_like(a[0]).detach();
    b[0].mutable_grad() = step == 1 ? (a[0].grad() * 0.25f) : a[0].grad().clone();
    if (step == 1) adamw.scale_next_step(0.25);
    adamw.step();
    other.step();
  }
  CHECK((a[0] - b[0]).abs().max().item<double>() < 1e-7);
}

TEST_CASE(
    "adamw: an archive keeps the moments of a tied weight, and a refused one changes nothing") {
  const auto archive_of = [](const AdamW& adamw) {
    std::stringstream bytes;
    torch::serialize::OutputArchive out;
    adamw.save(out);
    out.save_to(bytes);
    torch::serialize::InputArchive in;
    in.load_from(bytes);
    return in;
  };
  const Tensor tied = at::ones({3}).requires_grad_(), other = at::ones({2}).requires_grad_();
  tied.mutable_grad() = at::ones({3});
  AdamW adamw({tied, tied, other}), loaded({tied, tied, other}), larger({tied, other});
  adamw.step();
  auto archive = archive_of(adamw);
  loaded.load(archive);
  REQUIRE(loaded.state().count(tied.unsafeGetTensorImpl()) == 1);
  const auto* state = static_cast<const torch::optim::AdamWParamState*>(
      loaded.state().at(tied.unsafeGetTensorImpl()).get());
  REQUIRE(state != nullptr);
  CHECK(state->step() == 1);
  CHECK(state->exp_avg().gt(0).all().item<bool>());
  CHECK(loaded.state().count(other.unsafeGetTensorImpl()) == 0);

  auto again = archive_of(adamw);
  CHECK_THROWS_AS(larger.load(again), DataError);
  CHECK(larger.state().empty());
}

TEST_CASE("adamw: clip_grad_norm_ agrees with LibTorch's and counts sparse gradients") {
  auto a = parameters(5), b = parameters(5);
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i].mutable_grad() = at::randn_like(a[i]).detach();
    b[i].mutable_grad() = a[i].grad().clone();
  }
  const double got = clip_grad_norm_(a, 1.0), expected = torch::nn::utils::clip_grad_norm_(b, 1.0);
  CHECK(got == doctest::Approx(expected).epsilon(1e-5));
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

TEST_CASE("adamw: clipping changes sparse gradients that share their values once each") {
  const Tensor ids = torch::tensor({1, 3, 4}, at::kLong), places = torch::arange(3);
  const auto table = [](const Tensor& of) {
    return at::zeros({6, 2}).index_add(0, of, at::full({3, 2}, 4.0));
  };
  Tensor words, positions;
  const auto compute_gradients = [&] {
    words = at::zeros({6, 2}).requires_grad_();
    positions = at::zeros({6, 2}).requires_grad_();
    const Tensor sum = at::embedding(words, ids, -1, false, /*sparse=*/true) +
                       at::embedding(positions, places, -1, false, /*sparse=*/true);
    (sum * at::full({3, 2}, 4.0)).sum().backward();
    REQUIRE(words.grad()._values().is_alias_of(positions.grad()._values()));
  };
  compute_gradients();
  const double norm = clip_grad_norm_({words, positions}, 1.0);
  CHECK(norm == doctest::Approx(std::sqrt(12 * 16.0)));
  CHECK(gradient_norm({words, positions}) == doctest::Approx(1.0));
  CHECK(words.grad().is_sparse());

  compute_gradients();
  clip_grad_norm_({words}, 0.5);
  CHECK(gradient_norm({words}) == doctest::Approx(0.5));
  CHECK(at::equal(positions.grad().to_dense(), table(places)));

  compute_gradients();
  clip_grad_value_({words}, 1.0);
  CHECK(at::equal(words.grad().to_dense(), table(ids) / 4));
  CHECK(at::equal(positions.grad().to_dense(), table(places)));
}

TEST_CASE("adamw: a NaN in any gradient makes the infinity norm NaN, as in PyTorch") {
  for (const std::size_t broken : {0, 1, 2}) {
    CAPTURE(broken);
    const auto all = parameters(9);
    for (const Tensor& each : all) each.mutable_grad() = at::ones_like(each).detach();
    all[broken].grad().flatten()[0].fill_(NAN);
    CHECK(std::isnan(gradient_norm(all, INFINITY)));
    CHECK(std::isnan(double(clip_grad_norm_(all, 1.0, INFINITY))));
  }
}

TEST_CASE("adamw: amsgrad and parameters that are neither float nor bfloat16 are refused") {
  CHECK_THROWS_AS(AdamW(parameters(6), AdamWOptions(1e-3).amsgrad(true)), UsageError);
  CHECK_THROWS_AS(AdamW(std::vector<Tensor>{at::zeros({3}, at::kHalf)}), UsageError);
}

TEST_CASE("adamw: a step raises versions, so that backward through changed weights throws") {
  for (const char* const kind : {"dense", "sparse", "double"}) {
    CAPTURE(kind);
    const bool sparse = kind == std::string("sparse");
    const at::ScalarType type = kind == std::string("double") ? at::kDouble : at::kFloat;
    const Tensor w = at::randn({30, 3}, type).requires_grad_();
    AdamW adamw(std::vector<Tensor>{w});
    const Tensor gradient = at::zeros({30, 3}, type);
    gradient[2].fill_(1);
    const auto give_gradient = [&] {
      w.mutable_grad() = sparse ? gradient.to_sparse(1) : gradient.clone();
    };
    give_gradient();
    adamw.step();
    const auto& state =
        static_cast<torch::optim::AdamWParamState&>(*adamw.state().at(w.unsafeGetTensorImpl()));
    const auto versions = [&] {
      return std::array<std::uint32_t, 3>{
          static_cast<std::uint32_t>(w._version()),
          static_cast<std::uint32_t>(state.exp_avg()._version()),
          static_cast<std::uint32_t>(state.exp_avg_sq()._version())};
    };
    const auto before = versions();
    const Tensor loss = at::mm(at::randn({2, 30}, type).requires_grad_(), w).sum();
    give_gradient();
    adamw.step();
    for (std::size_t i = 0; i < before.size(); ++i) CHECK(versions()[i] > before[i]);
    CHECK_THROWS_AS(loss.backward(), c10::Error);
  }
}

TEST_CASE("adamw: a change of the moments between sparse steps takes effect") {
  using State = torch::optim::AdamWParamState;
  const auto run = [](bool sparse, int how) {
    const Tensor w = at::ones({64, 512}).requires_grad_();
    AdamW adamw({w}, AdamWOptions(0.1).weight_decay(0));
    const auto step = [&](int row) {
      const Tensor gradient = at::zeros({64, 512});
      gradient[row].fill_(1);
      w.mutable_grad() = sparse ? gradient.to_sparse(1) : gradient;
      adamw.step();
    };
    const auto state = [&]() -> State& {
      return static_cast<State&>(*adamw.state().at(w.unsafeGetTensorImpl()));
    };
    const torch::NoGradGuard no_grad;
    if (how == 0) {  // the program sets a state before the first step
      auto made = std::make_unique<State>();
      made->exp_avg(at::full({64, 512}, 0.5));
      made->exp_avg_sq(at::full({64, 512}, 0.5));
      adamw.state()[w.unsafeGetTensorImpl()] = std::move(made);
    }
    for (int i = 0; i < 4; ++i) step(3);
    if (how == 1) state().exp_avg().copy_(at::full({64, 512}, 0.5));
    if (how == 2) state().exp_avg_sq()[60].fill_(0.25);
    if (how == 3) {  // a new tensor may get the address of the old one
      state().exp_avg(at::Tensor());
      state().exp_avg(at::full({64, 512}, 0.5));
    }
    for (int i = 0; i < 4; ++i) step(5);
    return w.detach().clone();
  };
  for (const int how : {0, 1, 2, 3}) {
    CAPTURE(how);
    CHECK(at::equal(run(true, how), run(false, how)));
  }
}

TEST_CASE("adamw: parameters and gradients may have any strides") {
  const auto channels_last = [](const Tensor& x) {
    return x.contiguous(at::MemoryFormat::ChannelsLast);
  };
  const auto transposed = [](const Tensor& x) {
    return x.transpose(0, 3).contiguous().transpose(0, 3);
  };
  const auto with_gaps = [](const Tensor& x) {
    const Tensor wide = at::cat({x, x}, 1);
    return wide.narrow(1, 0, x.size(1));
  };
  for (const std::function<Tensor(const Tensor&)>& layout :
       {std::function<Tensor(const Tensor&)>(channels_last),
        std::function<Tensor(const Tensor&)>(transposed),
        std::function<Tensor(const Tensor&)>(with_gaps)}) {
    // Moments of the second size have their own allocation.
    for (const std::int64_t width : {6, 600}) {
      torch::manual_seed(1);
      const Tensor start = at::randn({20, 8, 3, width});
      const Tensor plain = start.clone().requires_grad_();
      const Tensor other = layout(start).detach().requires_grad_();
      REQUIRE_FALSE(other.is_contiguous());
      const auto strides = other.strides().vec();
      AdamW a(std::vector<Tensor>{plain}), b(std::vector<Tensor>{other});
      for (int step = 0; step < 4; ++step) {
        plain.mutable_grad() = at::randn_like(plain).detach();
        // The gradient has the parameter's strides, then different strides, and is then expanded.
        if (step == 3) plain.mutable_grad() = at::randn({3, width}).expand({20, 8, 3, width});
        other.mutable_grad() =
            step == 0 ? at::empty_like(other).detach().copy_(plain.grad()) : plain.grad();
        if (step == 2) {  // as if a checkpoint were loaded
          auto& state = static_cast<torch::optim::AdamWParamState&>(
              *b.state().at(other.unsafeGetTensorImpl()));
          state.exp_avg(state.exp_avg().contiguous());
        }
        a.step();
        b.step();
        CHECK(at::equal(plain, other));
      }
      CHECK(other.strides().vec() == strides);
    }
  }
}

TEST_CASE("adamw: sparse gradients of other forms equal their dense gradients") {
  torch::manual_seed(2);
  const Tensor gradient = at::zeros({30, 4});
  gradient[3].fill_(2);
  gradient[7][1] = -1;
  const Tensor start = at::randn({30, 4});
  const auto weights_after_steps = [&](const Tensor& parameter, const Tensor& with) {
    AdamW adamw(std::vector<Tensor>{parameter});
    for (int i = 0; i < 3; ++i) {
      parameter.mutable_grad() = with;
      adamw.step();
    }
    return parameter.detach().contiguous();
  };
  const Tensor expected = weights_after_steps(start.clone().requires_grad_(), gradient);
  CHECK(at::equal(weights_after_steps(start.clone().requires_grad_(), gradient.to_sparse(1)),
                  expected));
  CHECK(at::equal(weights_after_steps(start.clone().requires_grad_(), gradient.to_sparse(2)),
                  expected));
  const Tensor transposed = start.t().contiguous().t().requires_grad_();
  CHECK(at::equal(weights_after_steps(transposed, gradient.to_sparse(1)), expected));
}

TEST_CASE("adamw: a parameter that appears twice is stepped once") {
  const Tensor w = at::ones({200000}).requires_grad_(), once = w.detach().clone().requires_grad_();
  AdamW tied({w, w}, AdamWOptions(0.1)), plain({once}, AdamWOptions(0.1));
  w.mutable_grad() = at::ones({200000});
  once.mutable_grad() = at::ones({200000});
  tied.step();
  plain.step();
  CHECK(at::equal(w, once));
}

TEST_CASE("adamw: input that does not fit is refused before anything is written") {
  const auto code_of_step = [](AdamW& adamw) { return code_of([&] { adamw.step(); }); };
  const Tensor w = at::ones({4, 4}).requires_grad_();
  AdamW adamw(std::vector<Tensor>{w});
  w.mutable_grad() = at::ones({2, 2});
  CHECK(code_of_step(adamw) == "optim.gradient-shape");
  w.mutable_grad() = at::ones({4, 4});
  adamw.step();
  auto& state =
      static_cast<torch::optim::AdamWParamState&>(*adamw.state().at(w.unsafeGetTensorImpl()));
  state.exp_avg_sq(at::zeros({2}));
  const Tensor before = w.detach().clone();
  CHECK(code_of_step(adamw) == "optim.state-shape");
  CHECK(at::equal(w, before));
  CHECK(state.step() == 1);
  AdamW later(std::vector<Tensor>{w});
  later.add_param_group(
      torch::optim::OptimizerParamGroup({at::zeros({3}, at::kHalf).requires_grad_()}));
  CHECK(code_of_step(later) == "optim.dtype");
  AdamW changed(std::vector<Tensor>{w});
  static_cast<AdamWOptions&>(changed.param_groups()[0].options()).amsgrad(true);
  CHECK(code_of_step(changed) == "optim.amsgrad");
}

TEST_CASE("adamw: the norm of gradients in several types equals LibTorch's") {
  const Tensor a = at::ones({4}, at::kBFloat16).requires_grad_(),
               b = at::ones({4}, at::kDouble).requires_grad_(), c = at::ones({4}).requires_grad_(),
               d = at::ones({4}, at::kHalf).requires_grad_();
  const std::vector<Tensor> all = {a, b, c, d};
  for (const Tensor& each : all) each.mutable_grad() = at::full_like(each, 2).detach();
  for (const double type : {1.0, 2.0, 3.0, static_cast<double>(INFINITY)}) {
    CAPTURE(type);
    const double expected =
        at::linalg_vector_norm(at::full({16}, 2, at::kDouble), type).item<double>();
    CHECK(gradient_norm(all, type) == doctest::Approx(expected));
    CHECK(gradient_norm_on_device(all, type).item<double>() == doctest::Approx(expected));
  }
  CHECK(double(clip_grad_norm_(all, 1.0)) == doctest::Approx(8));
  CHECK(gradient_norm(all) == doctest::Approx(1).epsilon(1e-2));
}

TEST_CASE(
    "adamw: the norm on a device that has double loses no small gradient beside a large one") {
  std::vector<Tensor> all = {at::zeros({1}).requires_grad_()};
  all[0].mutable_grad() = at::full({1}, 1e4);
  for (int i = 0; i < 1000; ++i) {
    all.push_back(at::zeros({1}).requires_grad_());
    all.back().mutable_grad() = at::ones({1});
  }
  const Tensor norm = gradient_norm_on_device(all);
  CHECK((norm.scalar_type() == at::kDouble));
  CHECK(norm.item<double>() == doctest::Approx(std::sqrt(1e8 + 1000)).epsilon(1e-14));
  // Kernels and gradients take the factor in float.
  CHECK((clip_factor(norm, 1.0).scalar_type() == at::kFloat));
  CHECK(clip_factor(norm, 1.0).item<double>() ==
        doctest::Approx(clip_factor(norm.item<double>(), 1.0)).epsilon(1e-7));
}

TEST_CASE("adamw: a norm that is not finite clips on the device as on the host") {
  for (const double bad : {static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
    CAPTURE(bad);
    const auto clipped = [&](bool on_device) {
      const Tensor w = at::zeros({3}).requires_grad_();
      w.mutable_grad() = at::tensor({1.0F, static_cast<float>(bad), -2.0F});
      if (on_device) {
        scale_gradients_({w}, clip_factor(gradient_norm_on_device({w}), 1.0));
      } else {
        scale_gradients_({w}, clip_factor(gradient_norm({w}), 1.0));
      }
      return w.grad();
    };
    CHECK(at::allclose(clipped(true), clipped(false), 0, 0, /*equal_nan=*/true));
  }
}

}  // namespace optim_adamw_test
