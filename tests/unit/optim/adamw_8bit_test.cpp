// AdamW8bit and Lion8bit: their states, sparse gradients, checkpoints, other devices, and what they
// refuse. tests/oracle compares their numbers with the published algorithm.
#include "hasten/optim/detail/adamw_8bit.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include "anatomy/textbook.h"
#include "checkpoint/optimizer_state.h"
#include "hasten/optim/adamw.h"
#include "hasten/optim/detail/lion_8bit.h"
#include "optim/quantized_moments.h"
#include "unit/code_of.h"

namespace adamw_8bit_test {

using namespace hasten;

namespace {

constexpr ops::AdamWStep kAdamWStep = {.learning_rate = 0.01,
                                       .beta1 = 0.9,
                                       .beta2 = 0.999,
                                       .epsilon = 1e-8,
                                       .weight_decay = 0.01,
                                       .gradient_scale = 1};

at::Tensor leaf(at::IntArrayRef shape, at::ScalarType type = at::kFloat) {
  torch::manual_seed(5);
  return at::randn(shape).to(type).requires_grad_();
}

void set_gradient(const at::Tensor& weight, std::int64_t seed) {
  torch::manual_seed(seed);
  weight.mutable_grad() = at::randn(weight.sizes()).to(weight.scalar_type());
}

const ParamState& state_of(const torch::optim::Optimizer& optimizer, const at::Tensor& weight) {
  return static_cast<const ParamState&>(*optimizer.state().at(weight.unsafeGetTensorImpl()));
}

std::size_t state_bytes(const torch::optim::Optimizer& optimizer, const at::Tensor& weight) {
  std::size_t bytes = 0;
  for (const auto& [name, tensor] : state_of(optimizer, weight).tensors) bytes += tensor.nbytes();
  return bytes;
}

template <class Optimizer, class Options>
void check_sparse(at::ScalarType type, Options options) {
  const at::Tensor dense = leaf({700, 20}, type), rows = dense.detach().clone().requires_grad_();
  Optimizer of_dense({dense}, options), of_rows({rows}, options);
  for (std::int64_t step = 0; step < 3; ++step) {
    torch::manual_seed(step);
    const at::Tensor ids = at::randint(0, 300 + 200 * step, {40}),
                     values = at::randn({40, 20}).to(type);
    // Repeated rows are summed.
    rows.mutable_grad() = at::sparse_coo_tensor(ids.unsqueeze(0), values, {700, 20});
    dense.mutable_grad() = rows.grad().coalesce().to_dense();
    of_dense.step();
    of_rows.step();
    REQUIRE(rows.equal(dense));
    for (const auto& [name, tensor] : state_of(of_dense, dense).tensors)
      REQUIRE(tensor.equal(state_of(of_rows, rows).tensors.at(name)));
  }
}

}  // namespace

TEST_CASE(
    "8 bits: a moment takes a byte an element and a float for 256, and small ones are floats") {
  const at::Tensor large = leaf({70, 100}), small = leaf({4095}), edge = leaf({4096});
  for (const at::Tensor& each : {large, small, edge}) set_gradient(each, 1);
  AdamW8bit adamw({large, small, edge});
  adamw.step();
  CHECK(state_bytes(adamw, large) == 2 * (7000 + 4 * 28));
  CHECK(state_bytes(adamw, edge) == 2 * (4096 + 4 * 16));
  CHECK(state_bytes(adamw, small) == 2 * 4 * 4095);
  Lion8bit lion({large, small});
  lion.step();
  CHECK(state_bytes(lion, large) == 7000 + 4 * 28);
  CHECK(state_bytes(lion, small) == 4 * 4095);
  CHECK(anatomy::textbook_states(adamw)->bytes == 2);
  CHECK(anatomy::textbook_states(lion)->bytes == 1);
  CHECK(anatomy::textbook_states(adamw)->optimizer == "AdamW8bit");
}

TEST_CASE("8 bits: each group chooses its bits, and a step with 32 bits equals AdamW's") {
  const at::Tensor weight = leaf({80, 80}), table = leaf({90, 80});
  const at::Tensor as_adamw = table.detach().clone().requires_grad_();
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>{weight}, AdamW8bitOptions(0.01).clone());
  groups.emplace_back(std::vector<at::Tensor>{table}, AdamW8bitOptions(0.01).bits(32).clone());
  AdamW8bit adamw(groups);
  AdamW plain({as_adamw}, torch::optim::AdamWOptions(0.01).weight_decay(0.01));
  for (std::int64_t step = 0; step < 3; ++step) {
    set_gradient(weight, step);
    set_gradient(table, step);
    as_adamw.mutable_grad() = table.grad().clone();
    adamw.step();
    plain.step();
  }
  CHECK((state_of(adamw, weight).tensors.at("exp_avg").scalar_type() == at::kByte));
  CHECK((state_of(adamw, table).tensors.at("exp_avg").scalar_type() == at::kFloat));
  CHECK(table.allclose(as_adamw, 1e-6, 1e-7));
  CHECK_FALSE(table.equal(leaf({90, 80})));
}

TEST_CASE("8 bits: a sparse gradient has the result of the dense one, to the last bit") {
  check_sparse<AdamW8bit>(at::kFloat, AdamW8bitOptions(0.01));
  check_sparse<AdamW8bit>(at::kBFloat16, AdamW8bitOptions(0.01));
  check_sparse<AdamW8bit>(at::kFloat, AdamW8bitOptions(0.01).bits(32).maximize(true));
  check_sparse<Lion8bit>(at::kFloat, Lion8bitOptions(0.01).weight_decay(0.1));
  check_sparse<Lion8bit>(at::kFloat, Lion8bitOptions(0.01).min_8bit_size(1 << 20));
}

TEST_CASE("8 bits: a step handles strided weights, version counters and scaled gradients") {
  const at::Tensor base = leaf({64, 100}).detach(), straight = base.t().clone().requires_grad_(),
                   transposed = base.clone().t().requires_grad_();
  AdamW8bit of_straight({straight}), of_transposed({transposed});
  set_gradient(straight, 2);
  transposed.mutable_grad() = straight.grad().clone();
  const auto version = transposed._version();
  of_straight.scale_next_step(0.25);
  of_straight.step();
  transposed.mutable_grad().mul_(0.25);
  of_transposed.step();
  CHECK(transposed.equal(straight));
  CHECK(transposed._version() > version);
  of_straight.step();  // the factor was for one step
  transposed.mutable_grad().mul_(4);
  of_transposed.step();
  CHECK(transposed.equal(straight));
}

TEST_CASE("8 bits: the result does not depend on the number of threads") {
  const auto weights_after_steps = [](int threads) {
    const int before = at::get_num_threads();
    at::set_num_threads(threads);
    const at::Tensor weight = leaf({300, 301});
    AdamW8bit adamw({weight});
    for (std::int64_t step = 0; step < 2; ++step) {
      set_gradient(weight, step);
      adamw.step();
    }
    at::set_num_threads(before);
    return weight.detach();
  };
  CHECK(weights_after_steps(1).equal(weights_after_steps(3)));
}

TEST_CASE("8 bits: a checkpoint continues with the same bits, and other options are refused") {
  const at::Tensor weight = leaf({100, 50}), bias = leaf({50});
  const std::map<std::string, at::Tensor> names = {{"weight", weight}, {"bias", bias}};
  const auto step = [&](torch::optim::Optimizer& optimizer, std::int64_t seed) {
    set_gradient(weight, seed);
    set_gradient(bias, seed);
    optimizer.step();
  };
  AdamW8bit adamw({weight, bias});
  step(adamw, 1);
  // optimizer_tensors() returns the optimizer's own tensors, so they have to be copied.
  TensorDict saved;
  for (const auto& [name, tensor] : optimizer_tensors(adamw, names)) saved[name] = tensor.clone();
  CHECK((saved.at("weight.exp_avg").scalar_type() == at::kByte));
  CHECK(name_of_optimizer(adamw) == "AdamW8bit");
  const at::Tensor before = weight.detach().clone();
  step(adamw, 2);
  const at::Tensor expected = weight.detach().clone();
  {
    const torch::NoGradGuard no_grad;
    weight.copy_(before);
  }
  AdamW8bit resumed({weight, bias});
  restore_optimizer(resumed, names, saved, "file");
  step(resumed, 2);
  CHECK(weight.equal(expected));

  AdamW8bit other({weight, bias}, AdamW8bitOptions().bits(32));
  restore_optimizer(other, names, saved, "file");
  CHECK(code_of([&] { step(other, 3); }) == "optim.incomplete-state");
  TensorDict lacking = saved;
  lacking.erase("weight.exp_avg_sq_scale");
  restore_optimizer(resumed, names, lacking, "file");
  CHECK(code_of([&] { step(resumed, 3); }) == "optim.incomplete-state");
}

TEST_CASE("8 bits: the steps of other devices have the same numbers") {
  const at::Tensor here = leaf({70, 90}), there = here.detach().clone().requires_grad_();
  AdamW8bit adamw({here}, AdamW8bitOptions(0.01));
  MomentsOnDevice on_device;
  ParamState state;
  const torch::NoGradGuard no_grad;
  for (std::int64_t step = 0; step < 3; ++step) {
    set_gradient(here, step);
    adamw.step();
    ++state.step;
    ops::Moments mean, square;
    add_moment(mean, "AdamW8bit", "exp_avg", there, state, true);
    add_moment(square, "AdamW8bit", "exp_avg_sq", there, state, true);
    on_device.adamw(MomentEntry(there, here.grad()), mean, square, state.step, kAdamWStep, {});
  }
  CHECK(there.allclose(here, 1e-5, 1e-6));
  for (const char* name : {"exp_avg", "exp_avg_sq"}) {
    const at::Tensor codes = state.tensors.at(name).to(at::kInt),
                     expected = state_of(adamw, here).tensors.at(name).to(at::kInt);
    CHECK((codes - expected).abs().max().item<int>() <= 1);
    CHECK(codes.ne(expected).sum().item<std::int64_t>() < 70);  // of 6300
  }
}

TEST_CASE("8 bits: the factor of a step may be on the device of the gradients") {
  const at::Tensor weight = leaf({80, 80}), same = weight.detach().clone().requires_grad_();
  AdamW8bit adamw({weight}), other({same});
  set_gradient(weight, 1);
  same.mutable_grad() = weight.grad().clone();
  adamw.scale_next_step(at::scalar_tensor(0.25));
  other.scale_next_step(0.25);
  adamw.step();
  other.step();
  CHECK(weight.equal(same));
  CHECK_FALSE(adamw.scale_of_next_step().on_device.defined());

  const auto update_on_device = [&](const GradientScale& scale) {
    const torch::NoGradGuard no_grad;
    const at::Tensor there = leaf({80, 80});
    ParamState state;
    state.step = 1;
    ops::Moments mean, square;
    add_moment(mean, "AdamW8bit", "exp_avg", there, state, true);
    add_moment(square, "AdamW8bit", "exp_avg_sq", there, state, true);
    MomentsOnDevice().adamw(MomentEntry(there, weight.grad()), mean, square, 1, kAdamWStep, scale);
    return state.tensors.at("exp_avg_scale");
  };
  const at::Tensor by_number = update_on_device({.number = 0.25});
  CHECK(update_on_device({.on_device = at::scalar_tensor(0.25)}).equal(by_number));
  CHECK((update_on_device({}) * 0.25).allclose(by_number));
}

TEST_CASE("8 bits: a gradient of another type is converted, as by AdamW") {
  const auto weights_after_steps = [](bool sparse, at::ScalarType type) {
    const at::Tensor table = leaf({700, 20});
    AdamW8bit adamw({table});
    const at::Tensor rows = at::ones({3, 20}).to(type),
                     ids = torch::tensor({{1, 5, 600}}, at::kLong);
    const at::Tensor gradient = at::sparse_coo_tensor(ids, rows, {700, 20});
    table.mutable_grad() = sparse ? gradient : gradient.to_dense();
    adamw.step();
    return table.detach();
  };
  const at::Tensor expected = weights_after_steps(false, at::kFloat);
  for (const bool sparse : {true, false})
    CHECK(weights_after_steps(sparse, at::kBFloat16).equal(expected));
}

TEST_CASE("8 bits: a loaded state with gaps has the same bits") {
  const at::Tensor weight = leaf({80, 80}), other = weight.detach().clone().requires_grad_();
  AdamW8bit adamw({weight}), from_gaps({other});
  for (std::int64_t step = 0; step < 2; ++step) {
    set_gradient(weight, step);
    other.mutable_grad() = weight.grad().clone();
    adamw.step();
    from_gaps.step();
    auto& state = static_cast<ParamState&>(*from_gaps.state().at(other.unsafeGetTensorImpl()));
    for (auto& [name, tensor] : state.tensors) {
      if (tensor.dim() == 2) tensor = tensor.t().contiguous().t();
    }
  }
  CHECK(weight.equal(other));
}

TEST_CASE("8 bits: invalid options and types are refused") {
  const at::Tensor weight = leaf({2});
  CHECK(code_of([&] { AdamW8bit({weight}, AdamW8bitOptions().bits(4)); }) == "optim.out-of-range");
  CHECK(code_of([&] { Lion8bit({weight}, Lion8bitOptions().min_8bit_size(-1)); }) ==
        "optim.out-of-range");
  const at::Tensor doubles = leaf({3}, at::kDouble);
  set_gradient(doubles, 1);
  AdamW8bit adamw({doubles});
  CHECK(code_of([&] { adamw.step(); }) == "optim.dtype");
  Lion8bit lion({doubles});
  CHECK(code_of([&] { lion.step(); }) == "optim.dtype");
}

}  // namespace adamw_8bit_test
