// The optimizer's step inside the backward pass, and in host memory: it gives the bits of an
// ordinary step. Other tests cover the gradients that exist at the same time, the anatomy, and
// refusals.
#include "prepare/optimizer_step.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <functional>

#include "hasten/accelerator.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/optim/adamw.h"
#include "hasten/optim/detail/adafactor.h"
#include "hasten/optim/detail/adamw_8bit.h"
#include "hasten/optim/detail/lamb.h"
#include "hasten/optim/detail/lion_8bit.h"
#include "hasten/optim/detail/nadam.h"
#include "prepare/accelerator_state.h"
#include "unit/code_of.h"

namespace prepare_optimizer_step_test {

using namespace hasten;
using anatomy::Component;

namespace {

using Optimizer = torch::optim::Optimizer;
using OptimizerMaker = std::function<std::shared_ptr<Optimizer>(std::vector<at::Tensor>)>;

// One table is used twice, one layer has no effect, and the table's gradient is sparse.
struct TiedNet : torch::nn::Module {
  explicit TiedNet(bool sparse = false) {
    torch::manual_seed(1);
    table = register_module(
        "table", torch::nn::Embedding(torch::nn::EmbeddingOptions(50, 100).sparse(sparse)));
    layer = register_module("layer", torch::nn::Linear(100, 100));
    idle = register_module("idle", torch::nn::Linear(3, 3));
  }
  at::Tensor forward(const at::Tensor& ids) {
    const at::Tensor x = at::tanh(layer(at::tanh(layer(table(ids)))));
    return table->is_training() && table->options.sparse() ? x : at::matmul(x, table->weight.t());
  }
  torch::nn::Embedding table{nullptr};
  torch::nn::Linear layer{nullptr}, idle{nullptr};
};

template <class Made, class Options>
OptimizerMaker maker(Options options) {
  return [options](std::vector<at::Tensor> parameters) {
    return std::make_shared<Made>(std::move(parameters), options);
  };
}

const std::map<std::string, OptimizerMaker> kIndependentOptimizers = {
    {"AdamW", maker<AdamW>(torch::optim::AdamWOptions(0.01))},
    {"AdamW8bit", maker<AdamW8bit>(AdamW8bitOptions(0.01))},
    {"Lion8bit", maker<Lion8bit>(Lion8bitOptions(0.01))},
    {"Adafactor", maker<Adafactor>(AdafactorOptions(0.01).relative_step(false))},
    {"NAdam", maker<NAdam>(NAdamOptions(0.01))},
    {"torch Adam", maker<torch::optim::Adam>(torch::optim::AdamOptions(0.01))},
    {"torch SGD", maker<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9))},
    {"torch RMSprop", maker<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.01))},
    {"torch Adagrad", maker<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.1))}};

std::vector<at::Tensor> weights_of(const torch::nn::Module& net) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& each : net.parameters()) all.push_back(each.detach().clone());
  return all;
}

bool are_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!a[i].equal(b[i])) return false;
  }
  return true;
}

struct TrainingResult {
  std::vector<at::Tensor> weights;
  std::int64_t steps = 0;
  double norm = 0;
};

TrainingResult train(const AcceleratorOptions& options, const OptimizerMaker& make,
                     bool sparse = false) {
  Accelerator accelerator(options);
  const auto net = std::make_shared<TiedNet>(sparse);
  const auto plain = make(net->parameters());
  auto [model, optimizer] = accelerator.prepare(net, plain);
  auto schedule = get_scheduler("linear", optimizer, 1, 6);
  for (std::int64_t step = 0; step < 4; ++step) {
    torch::manual_seed(step);
    const at::Tensor ids = at::randint(0, 50, {3, 5});
    const auto guard = accelerator.accumulate(model);
    accelerator.backward(model(ids).square().mean());
    if (options.step_in_backward) {
      for (const at::Tensor& each : net->parameters()) CHECK_FALSE(each.grad().defined());
    }
    optimizer.step();
    schedule.step();
    optimizer.zero_grad();
  }
  return {weights_of(*net), optimizer.steps(), optimizer.norm_in_backward()};
}

anatomy::Report anatomy_of(const AcceleratorOptions& options, const OptimizerMaker& make) {
  Accelerator accelerator(options);
  torch::manual_seed(1);
  torch::nn::Sequential net;
  for (int i = 0; i < 6; ++i) net->push_back(torch::nn::Linear(200, 200));
  const auto plain = make(net->parameters());
  auto [model, optimizer] = accelerator.prepare(net, plain);
  auto anatomy = accelerator.anatomy({.steps = 2});
  for (int step = 0; step < 2; ++step) {
    accelerator.backward(model(at::ones({2, 200}, accelerator.device())).square().mean());
    optimizer.step();
    optimizer.zero_grad();
  }
  return anatomy.report();
}

}  // namespace

TEST_CASE("step in backward: every supported optimizer gets the bits of an ordinary step") {
  for (const auto& [name, make] : kIndependentOptimizers) {
    CAPTURE(name);
    const TrainingResult ordinary = train({.cpu = true}, make);
    const TrainingResult inside = train({.cpu = true, .step_in_backward = true}, make);
    CHECK(are_equal(inside.weights, ordinary.weights));
    CHECK_FALSE(are_equal(inside.weights, weights_of(TiedNet())));
    CHECK(inside.steps == 4);
    CHECK(inside.norm > 0);
    CHECK(ordinary.norm == 0);
  }
}

TEST_CASE("step in backward: it supports sparse gradients") {
  for (const char* name : {"AdamW", "AdamW8bit", "Lion8bit"}) {
    CAPTURE(name);
    const TrainingResult ordinary = train({.cpu = true}, kIndependentOptimizers.at(name), true);
    CHECK(are_equal(
        train({.cpu = true, .step_in_backward = true}, kIndependentOptimizers.at(name), true)
            .weights,
        ordinary.weights));
  }
}

TEST_CASE("step in backward: a destroyed handle leaves no hooks") {
  const auto net = std::make_shared<TiedNet>();
  {
    Accelerator accelerator({.cpu = true, .step_in_backward = true});
    auto [model, optimizer] = accelerator.prepare(net, std::make_shared<AdamW>(net->parameters()));
    accelerator.free_memory(model, optimizer);
  }
  net->forward(at::ones({1, 2}, at::kLong)).mean().backward();
  CHECK(net->layer->weight.grad().defined());
}

TEST_CASE("step in backward: step() steps a parameter whose gradient was set by other code") {
  Accelerator accelerator({.cpu = true, .step_in_backward = true});
  const auto net = std::make_shared<TiedNet>();
  auto [model, optimizer] = accelerator.prepare(net, std::make_shared<AdamW>(net->parameters()));
  const at::Tensor before = net->idle->weight.detach().clone();
  accelerator.backward(model(at::ones({1, 2}, at::kLong)).mean());
  net->idle->weight.mutable_grad() = at::ones({3, 3});
  optimizer.step();
  CHECK_FALSE(net->idle->weight.equal(before));
}

TEST_CASE("step in backward: every phase that observers have entered ends when a step throws") {
  struct OpenPhases final : StepObserver {
    void enter(StepPhase phase) override { open.push_back(phase); }
    void leave(StepPhase phase) override {
      REQUIRE_FALSE(open.empty());
      CHECK((open.back() == phase));
      open.pop_back();
    }
    std::vector<StepPhase> open;
  };
  const auto state = std::make_shared<AcceleratorState>(Precision::no, ProcessState{});
  const auto phases = std::make_shared<OpenPhases>();
  state->observers.add(phases);
  const at::Tensor weight = at::ones({2}, at::kDouble).requires_grad_();
  const auto adamw = std::make_shared<AdamW8bit>(std::vector<at::Tensor>{weight});
  const OptimizerStep step(adamw, SteppingOptions{.in_backward = true}, state);
  {
    const PhaseScope backward(state->observers, StepPhase::backward);
    CHECK(code_of([&] { weight.sum().backward(); }) == "optim.dtype");
  }
  CHECK(phases->open.empty());
}

TEST_CASE("step in backward: an operation that needs all gradients throws") {
  const auto net = std::make_shared<TiedNet>();
  constexpr const char* kCode = "prepare.step-in-backward";
  CHECK(code_of([] {
          Accelerator({.gradient_accumulation_steps = 2, .cpu = true, .step_in_backward = true});
        }) == kCode);
  CHECK(code_of([] { Accelerator({.cpu = true, .elastic_ranks = 2, .step_in_backward = true}); }) ==
        kCode);
  CHECK(code_of([] { check_stepping({.in_backward = true}, {.num_processes = 2}, 1, 0); }) ==
        kCode);
  CHECK(code_of([] {
          Accelerator({.mixed_precision = Precision::fp16, .cpu = true, .step_in_backward = true});
        }) == kCode);
  Accelerator accelerator({.cpu = true, .step_in_backward = true});
  CHECK(code_of([&] { (void)accelerator.prepare(std::make_shared<Lamb>(net->parameters())); }) ==
        kCode);
  CHECK(code_of([&] {
          (void)accelerator.prepare(std::make_shared<torch::optim::LBFGS>(net->parameters()));
        }) == kCode);
  auto [model, optimizer] = accelerator.prepare(net, std::make_shared<AdamW>(net->parameters()));
  CHECK(code_of([&] { (void)accelerator.prepare(std::make_shared<AdamW>(net->parameters())); }) ==
        kCode);
  const auto loss = [&] { return model(at::ones({1, 2}, at::kLong)).mean(); };
  CHECK(code_of([&] { accelerator.clip_grad_norm_(net->parameters(), 1.0); }) == kCode);
  CHECK(code_of([&] { accelerator.clip_grad_value_(net->parameters(), 1.0); }) == kCode);
  CHECK(code_of([&] { accelerator.backward(loss(), {.retain_graph = true}); }) == kCode);
  CHECK(code_of([&] { accelerator.backward(loss(), {.create_graph = true}); }) == kCode);
  CHECK(code_of([&] { accelerator.set_gradient_accumulation_steps(2); }) == kCode);
  CHECK(code_of([&] { optimizer.step(loss); }) == kCode);
  accelerator.backward(loss());
  CHECK(code_of([&] { accelerator.backward(loss()); }) == kCode);
}

TEST_CASE("step in backward: few gradients exist at once, as a dry run predicts exactly") {
  const auto adamw = kIndependentOptimizers.at("AdamW8bit");
  const auto measure = [&](bool inside) {
    return anatomy_of({.cpu = true, .step_in_backward = inside}, adamw);
  };
  const auto predict = [&](bool inside) {
    const DryRun dry;
    return measure(inside);
  };
  const anatomy::Report ordinary = measure(false), inside = measure(true);
  constexpr std::int64_t kAll = 6 * 4 * (200 * 200 + 200);
  CHECK(bytes_of(ordinary.memory.at_peak, Component::gradients) == kAll);
  CHECK(bytes_of(inside.memory.at_peak, Component::gradients) <= kAll / 6);
  CHECK(inside.memory.peak < ordinary.memory.peak - kAll / 2);
  CHECK(bytes_of(inside.memory.at_peak, Component::optimizer_states) ==
        bytes_of(ordinary.memory.at_peak, Component::optimizer_states));
  const anatomy::Report predicted = predict(true);
  CHECK(predicted.memory.peak == inside.memory.peak);
  CHECK(predicted.memory.at_peak == inside.memory.at_peak);
  CHECK(predict(false).memory.peak == ordinary.memory.peak);
}

TEST_CASE("states in host memory: nothing changes on the CPU") {
  for (const auto& [name, make] : kIndependentOptimizers) {
    CAPTURE(name);
    const TrainingResult ordinary = train({.cpu = true}, make);
    CHECK(are_equal(train({.cpu = true, .offload_optimizer_states = true}, make).weights,
                    ordinary.weights));
    CHECK(are_equal(
        train({.cpu = true, .step_in_backward = true, .offload_optimizer_states = true}, make)
            .weights,
        ordinary.weights));
  }
}

// Steps parameters as if they were on a device.
TEST_CASE("states in host memory: copies are stepped, and states belong to the parameters") {
  std::map<std::string, OptimizerMaker> makers = kIndependentOptimizers;
  makers["Lamb"] = maker<Lamb>(LambOptions(0.01));  // steps its parameters together
  for (const auto& [name, make] : makers) {
    CAPTURE(name);
    const auto steps = [&](bool offloads) {
      TiedNet net;
      const auto optimizer = make(net.parameters());
      HostStates host([](const at::Tensor&) { return true; });
      for (std::int64_t step = 0; step < 4; ++step) {
        torch::manual_seed(step);
        net.zero_grad();
        net.forward(at::randint(0, 50, {3, 5})).square().mean().backward();
        std::vector<at::Tensor> with_gradients;
        for (const at::Tensor& each : net.parameters()) {
          if (each.grad().defined()) with_gradients.push_back(each);
        }
        offloads ? host.step(*optimizer, with_gradients) : void(optimizer->step());
        if (step == 1) {  // other code changes the weights
          const torch::NoGradGuard no_grad;
          net.layer->weight.mul_(0.5);
        }
        for (const at::Tensor& each : with_gradients)
          REQUIRE(optimizer->state().count(each.unsafeGetTensorImpl()) ==
                  (optimizer->state().empty() ? 0 : 1));
        REQUIRE(optimizer->param_groups()[0].params().size() == net.parameters().size());
        REQUIRE(optimizer->param_groups()[0].params()[0].is_same(net.table->weight));
      }
      return weights_of(net);
    };
    CHECK(are_equal(steps(true), steps(false)));
  }
}

namespace {

// Makes three steps of a small net. The parameters that `needs_copy` chooses are stepped as if
// they were on a device. Calls `change` with the net and the optimizer before the second and the
// third step.
template <class Change>
std::vector<at::Tensor> train_in_host_memory(const OptimizerMaker& make,
                                             std::function<bool(const at::Tensor&)> needs_copy,
                                             Change change) {
  TiedNet net;
  const auto optimizer = make(net.parameters());
  HostStates host(std::move(needs_copy));
  for (int step = 0; step < 3; ++step) {
    if (step > 0) change(net, *optimizer);
    const at::Tensor x = at::tanh(net.layer(net.table(at::ones({2, 3}, at::kLong) * step)));
    net.zero_grad();
    at::matmul(x, net.table->weight.t()).square().mean().backward();
    std::vector<at::Tensor> with_gradients;
    for (const at::Tensor& each : net.parameters())
      if (each.grad().defined()) with_gradients.push_back(each);
    host.step(*optimizer, with_gradients);
  }
  return weights_of(net);
}

const auto kNoParameter = [](const at::Tensor&) { return false; };
const auto kEveryParameter = [](const at::Tensor&) { return true; };

}  // namespace

TEST_CASE("states in host memory: every gradient of a step is scaled by the same factor") {
  const auto clip = [](TiedNet&, Optimizer& optimizer) {
    dynamic_cast<GradientScalingOptimizer&>(optimizer).scale_next_step(1e-3);
  };
  const auto no_clip = [](TiedNet&, Optimizer&) {};
  for (const char* const name : {"AdamW", "AdamW8bit"}) {
    CAPTURE(name);
    const auto& make = kIndependentOptimizers.at(name);
    const auto expected = train_in_host_memory(make, kNoParameter, clip);
    CHECK(are_equal(train_in_host_memory(make, kEveryParameter, clip), expected));
    CHECK_FALSE(are_equal(train_in_host_memory(make, kNoParameter, no_clip), expected));
  }
}

TEST_CASE("states in host memory: Lamb steps parameters on the host and on the device together") {
  const auto some = [](const at::Tensor& each) { return each.dim() == 1; };
  const auto no_change = [](TiedNet&, Optimizer&) {};
  const auto lamb = maker<Lamb>(LambOptions(0.01));
  CHECK(are_equal(train_in_host_memory(lamb, some, no_change),
                  train_in_host_memory(lamb, kNoParameter, no_change)));
}

TEST_CASE("states in host memory: weights of another type get another copy") {
  const auto to_double = [](TiedNet& net, Optimizer&) { net.to(at::kDouble); };
  const auto sgd = maker<torch::optim::SGD>(torch::optim::SGDOptions(0.1));
  CHECK(are_equal(train_in_host_memory(sgd, kEveryParameter, to_double),
                  train_in_host_memory(sgd, kNoParameter, to_double)));
}

TEST_CASE("partial step: a tied weight uses its first group, and parameters keep their positions") {
  const auto train = [](bool partial) {
    torch::manual_seed(3);
    std::vector<at::Tensor> all;
    for (int i = 0; i < 3; ++i) all.push_back(at::randn({40}).to(at::kBFloat16).requires_grad_());
    const auto group = [](std::vector<at::Tensor> parameters, double lr) {
      return torch::optim::OptimizerParamGroup(std::move(parameters), AdamWOptions(lr).clone());
    };
    AdamW adamw({group({all[0], all[1]}, 0.01), group({all[0], all[2]}, 0.5)});
    PartialStep parts;
    for (int step = 0; step < 3; ++step) {
      for (const at::Tensor& each : all) each.mutable_grad() = at::randn({40}).to(at::kBFloat16);
      if (!partial) adamw.step();
      for (std::size_t i = 0; partial && i < all.size(); ++i) parts.run(adamw, {all[i]}, {all[i]});
    }
    CHECK(adamw.param_groups()[1].params()[0].is_same(all[0]));
    std::vector<at::Tensor> weights;
    for (const at::Tensor& each : all) weights.push_back(each.detach());
    return weights;
  };
  CHECK(are_equal(train(true), train(false)));
}

TEST_CASE("states in host memory: a simulated GPU has no optimizer states") {
  const auto states = [](const OptimizerMaker& make, bool offloads) {
    const DryRun dry(find_gpu("cuda:v100-16gb"));
    const anatomy::Report report = anatomy_of({.offload_optimizer_states = offloads}, make);
    return std::pair(bytes_of(report.memory.at_peak, Component::optimizer_states),
                     report.memory.peak);
  };
  for (const char* name : {"AdamW", "AdamW8bit", "Adafactor"}) {
    CAPTURE(name);
    const auto [there, peak_there] = states(kIndependentOptimizers.at(name), false);
    const auto [here, peak_here] = states(kIndependentOptimizers.at(name), true);
    CHECK(there > 0);
    CHECK(here == 0);
    CHECK(peak_here <= peak_there - there);
  }
}

TEST_CASE("states in host memory: LBFGS is refused") {
  torch::nn::Linear net(2, 2);
  Accelerator accelerator({.cpu = true, .offload_optimizer_states = true});
  CHECK(code_of([&] {
          (void)accelerator.prepare(std::make_shared<torch::optim::LBFGS>(net->parameters()));
        }) == "prepare.offload");
  auto optimizer = std::get<0>(accelerator.prepare(std::make_shared<AdamW>(net->parameters())));
  CHECK(code_of([&] { optimizer.step([] { return at::Tensor(); }); }) == "prepare.offload");
}

}  // namespace prepare_optimizer_step_test
