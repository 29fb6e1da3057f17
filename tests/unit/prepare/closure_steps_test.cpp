// Steps of optimizers that compute the loss themselves.
#include <ATen/autocast_mode.h>
#include <doctest/doctest.h>
#include <torch/torch.h>

#include "hasten/accelerator.h"
#include "prepare/accelerator_state.h"
#include "unit/code_of.h"
#include "unit/prepare/window_nets.h"

namespace prepare_closure_steps_test {

using namespace hasten;
using torch::optim::SGDOptions;
using namespace hasten::window_nets;

TEST_CASE("closure: LBFGS steps as LibTorch's does, with and without accumulation") {
  const auto lbfgs = [](const auto& net) {
    return torch::optim::LBFGS(
        net->parameters(),
        torch::optim::LBFGSOptions(0.5).max_iter(5).line_search_fn("strong_wolfe"));
  };
  struct Phases : StepObserver {
    void enter(StepPhase phase) override {
      CHECK(open == 0);
      ++open;
      optimizer += phase == StepPhase::optimizer ? 1 : 0;
    }
    void leave(StepPhase) override { --open; }
    void on_step() override { ++steps; }
    int open = 0, optimizer = 0, steps = 0;
  };
  for (const int micro_batches : {1, 2}) {
    const auto reference = std::make_shared<LinearNet>(3, 1),
               net = std::make_shared<LinearNet>(3, 1);
    auto plain = lbfgs(reference), raw = lbfgs(net);
    Accelerator accelerator({.gradient_accumulation_steps = micro_batches, .cpu = true});
    auto [model, optimizer] = accelerator.prepare(net, raw);
    int evaluations = 0, plain_evaluations = 0;
    for (int step = 0; step < 2; ++step) {
      plain.step([&] {
        ++plain_evaluations;
        plain.zero_grad();
        at::Tensor loss = torch::zeros({});
        for (int i = 0; i < micro_batches; ++i)
          loss = loss + loss_of(reference->forward(batch(10 * step + i))) / micro_batches;
        loss.backward();
        return loss;
      });
      const at::Tensor loss = optimizer.step([&] {
        ++evaluations;
        optimizer.zero_grad();
        at::Tensor mean = torch::zeros({});
        for (int i = 0; i < micro_batches; ++i) {
          const auto guard = accelerator.accumulate(model);
          const at::Tensor own = loss_of(model(batch(10 * step + i)));
          accelerator.backward(own);
          mean += own.detach() / micro_batches;
        }
        return mean;
      });
      CHECK(loss.item<double>() > 0);
    }
    CHECK(optimizer.steps() == 2);
    CHECK(evaluations > 4);
    CHECK(evaluations == plain_evaluations);
    CHECK(at::allclose(net->layer->weight, reference->layer->weight, 1e-4, 1e-5));
  }
  // A step with a closure may run outside any scope and in a window of one micro-batch. In a larger
  // window it is refused.
  const auto net = std::make_shared<LinearNet>(3, 1);
  auto raw = lbfgs(net);
  Accelerator accelerator({.cpu = true});
  auto [model, optimizer] = accelerator.prepare(net, raw);
  const auto phases = std::make_shared<Phases>();
  const double first = loss_of(model(batch(0))).item<double>();
  const auto closure = [&, &model = model, &optimizer = optimizer] {
    optimizer.zero_grad();
    const at::Tensor loss = loss_of(model(batch(0)));
    accelerator.backward(loss);
    return loss;
  };
  optimizer.step(closure);
  {
    const auto guard = accelerator.accumulate(model);
    optimizer.step(closure);
  }
  CHECK(loss_of(model(batch(0))).item<double>() < first);
  Accelerator windows({.gradient_accumulation_steps = 2, .cpu = true});
  auto [other_model, other_optimizer] = windows.prepare(net, raw);
  {
    const auto guard = windows.accumulate(other_model);
    CHECK(code_of([&, &other_optimizer = other_optimizer] { other_optimizer.step(closure); }) ==
          "prepare.closure-in-window");
  }
  CHECK(code_of([&, &other_model = other_model, &other_optimizer = other_optimizer] {
          other_optimizer.step([&] {
            const auto guard = windows.accumulate(other_model);
            const at::Tensor loss = loss_of(other_model(batch(0)));
            windows.backward(loss);
            return loss;
          });
        }) == "prepare.open-window");
  // Phases do not overlap, as in a step without a closure.
  const auto state = std::make_shared<AcceleratorState>(Precision::no, ProcessState{});
  state->observers.add(phases);
  PreparedOptimizer observed(std::make_shared<torch::optim::LBFGS>(lbfgs(net)), state);
  observed.step([&] {
    observed->zero_grad();
    const at::Tensor loss = loss_of(net->forward(batch(0)));
    state->backward({.loss = loss});
    return loss;
  });
  CHECK(phases->open == 0);
  CHECK(phases->optimizer > 1);
  CHECK(phases->steps == 1);
}

}  // namespace prepare_closure_steps_test
