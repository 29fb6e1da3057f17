// The behaviour that all optimizers of hasten/optim share, and the modes of the schedule-free ones.
#include "hasten/optim/stateful_optimizer.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "checkpoint/optimizer_state.h"
#include "hasten/base/error.h"
#include "hasten/optim/detail/adafactor.h"
#include "hasten/optim/detail/adamax.h"
#include "hasten/optim/detail/adamw_8bit.h"
#include "hasten/optim/detail/ademamix.h"
#include "hasten/optim/detail/lamb.h"
#include "hasten/optim/detail/lion.h"
#include "hasten/optim/detail/lion_8bit.h"
#include "hasten/optim/detail/muon.h"
#include "hasten/optim/detail/muon_adamw.h"
#include "hasten/optim/detail/nadam.h"
#include "hasten/optim/detail/radam.h"
#include "hasten/optim/detail/schedule_free.h"
#include "hasten/optim/detail/stable_adamw.h"

namespace stateful_optimizer_test {

using namespace hasten;

namespace {

template <class Action>
std::string code_of_error(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  return "";
}

at::Tensor parameter(at::Tensor values, double gradient = 0.5) {
  values.requires_grad_();
  values.mutable_grad() = at::full_like(values, gradient);
  return values;
}

}  // namespace

TEST_CASE("optimizers: options out of range are refused when the optimizer is made and in a step") {
  const at::Tensor weight = parameter(at::ones({2}));
  const auto make = [&](LionOptions options) { (void)Lion({weight}, std::move(options)); };
  CHECK(code_of_error([&] { make(LionOptions(-1)); }) == "optim.out-of-range");
  CHECK(code_of_error([&] { make(LionOptions(1).weight_decay(-0.1)); }) == "optim.out-of-range");
  CHECK(code_of_error([&] { make(LionOptions(1).betas({0.9, 1.0})); }) == "optim.out-of-range");
  Lion lion({weight});
  lion.param_groups()[0].options().set_lr(-1);
  CHECK(code_of_error([&] { lion.step(); }) == "optim.out-of-range");
  CHECK(code_of_error([&] { (void)Adafactor({weight}, AdafactorOptions(0.1)); }) ==
        "optim.relative-step");
}

TEST_CASE("optimizers: a group with another optimizer's options is refused") {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>{parameter(at::ones({2}))},
                      std::make_unique<NAdamOptions>());
  CHECK(code_of_error([&] { (void)Lion(groups); }) == "optim.options-kind");
}

TEST_CASE("optimizers: sparse gradients and parameters of a wrong shape are refused") {
  at::Tensor table = at::ones({3, 2}).requires_grad_();
  table.mutable_grad() = at::ones({3, 2}).to_sparse();
  Lion lion({table});
  CHECK(code_of_error([&] { lion.step(); }) == "optim.sparse-gradient");
  Muon muon({parameter(at::ones({2}))});
  CHECK(code_of_error([&] { muon.step(); }) == "optim.not-a-matrix");
}

TEST_CASE("optimizers: a step that is refused changes nothing") {
  for (const bool has_other_group : {true, false}) {
    CAPTURE(has_other_group);
    const at::Tensor good = parameter(at::ones({4096})), bad = parameter(at::ones({3}));
    bad.mutable_grad() = at::ones({5});
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::vector<at::Tensor>{good});
    if (has_other_group) {
      groups.emplace_back(std::vector<at::Tensor>{bad});
    } else {
      groups[0].params().push_back(bad);
    }
    AdamW8bit adamw(groups);
    CHECK(code_of_error([&] { adamw.step(); }) == "optim.gradient-shape");
    CHECK(good.eq(1).all().item<bool>());
    CHECK(adamw.state().empty());
    bad.mutable_grad() = at::ones({3});
    adamw.step();
    CHECK_FALSE(good.eq(1).any().item<bool>());
  }
}

TEST_CASE("optimizers: a step that refuses the state of a parameter changes nothing") {
  const at::Tensor first = parameter(at::ones({4, 3})), second = parameter(at::ones({4, 3}));
  const at::Tensor plain = parameter(at::ones({4, 3}));
  const auto check = [&](auto& optimizer, auto& undisturbed) {
    {
      const torch::NoGradGuard no_grad;
      for (const at::Tensor& each : {first, second, plain}) each.fill_(1);
    }
    optimizer.step();
    undisturbed.step();
    auto& state = static_cast<ParamState&>(*optimizer.state().at(second.unsafeGetTensorImpl()));
    const std::map<std::string, at::Tensor> tensors = state.tensors;
    for (const auto& [name, tensor] : tensors) {
      CAPTURE(name);
      state.tensors.erase(name);
      CHECK(code_of_error([&] { optimizer.step(); }) == "optim.incomplete-state");
      CHECK(state.tensors.size() + 1 == tensors.size());
      state.tensors[name] = tensor;
    }
    optimizer.step();
    undisturbed.step();
    CHECK(first.equal(plain));
    CHECK(second.equal(plain));
  };
  const NAdamOptions decoupled = NAdamOptions(0.1).weight_decay(0.1).decoupled_weight_decay(true);
  NAdam nadam({first, second}, decoupled), plain_nadam({plain}, decoupled);
  check(nadam, plain_nadam);
  AdEMAMix ademamix({first, second}), plain_ademamix({plain});
  check(ademamix, plain_ademamix);
  Adafactor adafactor({first, second}), plain_adafactor({plain});
  check(adafactor, plain_adafactor);
  AdamW8bit adamw({first, second}), plain_adamw({plain});
  check(adamw, plain_adamw);
  ScheduleFreeAdamW free({first, second}), plain_free({plain});
  free.train();
  plain_free.train();
  check(free, plain_free);
}

TEST_CASE("optimizers: a step that refuses a state of the last group changes no group") {
  const at::Tensor first = parameter(at::ones({4, 3})), second = parameter(at::ones({4, 3}));
  const std::vector<torch::optim::OptimizerParamGroup> groups = {
      torch::optim::OptimizerParamGroup(std::vector<at::Tensor>{first}),
      torch::optim::OptimizerParamGroup(std::vector<at::Tensor>{second})};
  const auto check = [&](auto& optimizer) {
    CAPTURE(optimizer.name());
    optimizer.step();
    const auto state_of = [&](const at::Tensor& each) -> ParamState& {
      return static_cast<ParamState&>(*optimizer.state().at(each.unsafeGetTensorImpl()));
    };
    const at::Tensor before = first.detach().clone();
    const std::map<std::string, at::Tensor> tensors = state_of(second).tensors;
    CHECK_FALSE(tensors.empty());
    for (const auto& [name, tensor] : tensors) {
      CAPTURE(name);
      state_of(second).tensors.erase(name);
      CHECK(code_of_error([&] { optimizer.step(); }) == "optim.incomplete-state");
      CHECK(first.equal(before));
      CHECK(state_of(first).step == 1);
      CHECK(state_of(second).step == 1);
      state_of(second).tensors[name] = tensor;
    }
    optimizer.step();
    CHECK(state_of(first).step == 2);
  };
  const auto check_new = [&](auto optimizer) { check(*optimizer); };
  check_new(std::make_unique<Adafactor>(groups, AdafactorOptions().beta1(0.9)));
  check_new(std::make_unique<Adamax>(groups));
  check_new(std::make_unique<AdamW8bit>(groups, AdamW8bitOptions().min_8bit_size(1)));
  check_new(std::make_unique<AdEMAMix>(groups));
  check_new(std::make_unique<Lamb>(groups));
  check_new(std::make_unique<Lion>(groups));
  check_new(std::make_unique<Lion8bit>(groups));
  check_new(std::make_unique<Muon>(groups));
  check_new(std::make_unique<MuonAdamW>(groups));
  check_new(std::make_unique<NAdam>(groups));
  check_new(std::make_unique<RAdam>(groups));
  check_new(std::make_unique<StableAdamW>(groups));
  ScheduleFreeAdamW free(groups);
  free.train();
  check(free);
}

TEST_CASE("optimizers: a first step of a parameter that is refused is made again") {
  const at::Tensor old = parameter(at::ones({4})), fresh = at::ones({4}).requires_grad_();
  NAdam nadam({old, fresh});
  nadam.step();
  fresh.mutable_grad() = at::ones({4});
  auto& state = static_cast<ParamState&>(*nadam.state().at(old.unsafeGetTensorImpl()));
  const at::Tensor average = state.tensors.at("exp_avg");
  state.tensors.erase("exp_avg");
  CHECK(code_of_error([&] { nadam.step(); }) == "optim.incomplete-state");
  CHECK(nadam.state().size() == 1);
  state.tensors["exp_avg"] = average;
  CHECK(code_of_error([&] { nadam.step(); }).empty());
  CHECK(state.step == 2);
  CHECK_FALSE(fresh.eq(1).any().item<bool>());
}

TEST_CASE("optimizers: a step with other bits that is refused is not counted") {
  const at::Tensor weight = parameter(at::ones({8192})), plain = parameter(at::ones({8192}));
  AdamW8bit adamw({weight}), undisturbed({plain});
  adamw.step();
  undisturbed.step();
  auto& options = static_cast<AdamW8bitOptions&>(adamw.param_groups()[0].options());
  options.bits(32);
  CHECK(code_of_error([&] { adamw.step(); }) == "optim.incomplete-state");
  options.bits(8);
  adamw.step();
  undisturbed.step();
  CHECK(weight.equal(plain));
}

TEST_CASE(
    "optimizers: an archive has the state of a tied weight, and one that is refused changes "
    "nothing") {
  const auto make = [](std::vector<std::vector<at::Tensor>> parameters) {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    for (auto& each : parameters) groups.emplace_back(std::move(each));
    return std::make_unique<Lion>(groups, LionOptions(0.25));
  };
  const auto archive_of = [](const torch::optim::Optimizer& optimizer) {
    std::stringstream stream;
    torch::serialize::OutputArchive out;
    optimizer.save(out);
    out.save_to(stream);
    torch::serialize::InputArchive in;
    in.load_from(stream);
    return in;
  };
  const at::Tensor tied = parameter(at::ones({2})), other = parameter(at::ones({2}));
  const auto lion = make({{tied, tied}, {other}});
  lion->step();
  const auto momentum = [&](Lion& of) {
    const auto& state = of.state().at(tied.unsafeGetTensorImpl());
    REQUIRE(state != nullptr);
    return static_cast<const ParamState&>(*state).tensors.at("exp_avg");
  };
  const auto loaded = make({{tied, tied}, {other}});
  auto archive = archive_of(*lion);
  loaded->load(archive);
  CHECK(momentum(*loaded).equal(momentum(*lion)));

  const auto larger = make({{tied, tied}, {other, parameter(at::ones({2}))}});
  larger->param_groups()[0].options().set_lr(0.5);
  auto again = archive_of(*lion);
  CHECK(code_of_error([&] { larger->load(again); }) == "optim.group-count");
  CHECK(larger->state().empty());
  CHECK(larger->param_groups()[0].options().get_lr() == 0.5);
}

TEST_CASE("optimizers: a schedule-free one changes nothing if an archive lacks its mode") {
  const at::Tensor weight = parameter(at::ones({2}));
  ScheduleFreeSGD sgd({weight}, ScheduleFreeSGDOptions(0.5)), other({weight});
  sgd.train();
  sgd.step();
  std::stringstream stream;
  torch::serialize::OutputArchive out;
  sgd.StatefulOptimizer::save(out);
  out.save_to(stream);
  torch::serialize::InputArchive in;
  in.load_from(stream);
  CHECK_THROWS(other.load(in));
  CHECK(other.state().empty());
}

TEST_CASE("stateful optimizer: an archive whose parameters are not named by addresses is refused") {
  using torch::serialize::OutputArchive;
  for (const bool is_in_state : {true, false}) {
    CAPTURE(is_in_state);
    OutputArchive state, parameter_state, groups, group, archive;
    ParamState().serialize(parameter_state);
    if (is_in_state) state.write("12x", parameter_state);
    group.write("params/size", at::scalar_tensor(1, at::kLong));
    group.write("params/0", c10::IValue(std::string("-12")));
    groups.write("param_groups/size", at::scalar_tensor(1, at::kLong));
    groups.write("param_groups/0", group);
    archive.write("state", state);
    archive.write("param_groups", groups);
    std::stringstream stream;
    archive.save_to(stream);
    torch::serialize::InputArchive in;
    in.load_from(stream);
    Lion lion({parameter(at::ones({2}))}, LionOptions(0.25));
    CHECK(code_of_error([&] { lion.load(in); }) == "optim.parameter-key");
  }
}

TEST_CASE("optimizers: a tied weight is stepped once, and a weight without a gradient not at all") {
  const at::Tensor tied = parameter(at::ones({2})), idle = at::ones({2}).requires_grad_();
  Lion lion({tied, tied, idle}, LionOptions(0.25));
  const at::Tensor loss = lion.step([&] { return at::ones({}); });
  CHECK(loss.item<double>() == 1);
  CHECK(tied.eq(0.75).all().item<bool>());
  CHECK(idle.eq(1).all().item<bool>());
  CHECK(lion.state().size() == 1);
}

TEST_CASE("optimizers: a checkpoint has the whole state") {
  const at::Tensor matrix = parameter(at::rand({3, 2})), bias = parameter(at::rand({2}));
  const std::map<std::string, at::Tensor> names = {{"a", matrix}, {"a.b", bias}};
  const auto continues = [&](auto& optimizer, auto& resumed) {
    optimizer.step();
    const TensorDict tensors = optimizer_tensors(optimizer, names);
    restore_optimizer(resumed, names, tensors, "file");
    const at::Tensor before = matrix.detach().clone(), bias_before = bias.detach().clone();
    optimizer.step();
    const at::Tensor expected = matrix.detach().clone();
    const torch::NoGradGuard no_grad;
    matrix.copy_(before);
    bias.copy_(bias_before);
    resumed.step();
    CHECK(matrix.equal(expected));
    CHECK(name_of_optimizer(resumed) == optimizer.name());
  };
  NAdam nadam({matrix, bias}), nadam_resumed({matrix, bias});
  continues(nadam, nadam_resumed);
  Adafactor adafactor({matrix, bias}), adafactor_resumed({matrix, bias});
  continues(adafactor, adafactor_resumed);
  ScheduleFreeAdamW free({matrix, bias}), free_resumed({matrix, bias});
  free.train();
  free_resumed.train();
  continues(free, free_resumed);

  TensorDict lacking = optimizer_tensors(nadam, names);
  lacking.erase("a.exp_avg");
  restore_optimizer(nadam_resumed, names, lacking, "file");
  CHECK(code_of_error([&] { nadam_resumed.step(); }) == "optim.incomplete-state");
}

TEST_CASE(
    "optimizers: schedule-free ones step only the weights of train(), and eval() returns the "
    "mean") {
  const at::Tensor weight = parameter(at::ones({2}), 1.0);
  ScheduleFreeSGD sgd({weight}, ScheduleFreeSGDOptions(0.5).momentum(0.9));
  CHECK(code_of_error([&] { sgd.step(); }) == "optim.eval-mode");
  sgd.train();
  sgd.step();  // z = 0.5 is also the mean of one step
  sgd.eval();
  CHECK(weight.allclose(at::full({2}, 0.5)));
  sgd.eval();
  CHECK(weight.allclose(at::full({2}, 0.5)));
  sgd.train();
  sgd.step();  // z = 0, so the mean of two steps is 0.25
  sgd.eval();
  CHECK(weight.allclose(at::full({2}, 0.25)));
}

}  // namespace stateful_optimizer_test
