// The seeds of dropout in a step that a graph replays.
#include "ops/step_seeds.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include "hasten/autograd/checkpoint.h"
#include "hasten/base/error.h"
#include "hasten/ops/ops.h"
#include "unit/code_of.h"
#include "unit/device/operator_graphs.h"

namespace ops_step_seeds_test {

using namespace hasten;
using namespace hasten::operator_graphs;
using at::Tensor;

namespace {

// A step of operators with dropout. It keeps its results in its tensors.
struct Step {
  Tensor x = at::randn({5, 8}), bias = at::randn({8}), gamma = at::rand({8}) + 1,
         beta = at::randn({8}), residual = at::randn({5, 8});
  Tensor kept = at::zeros({5, 8}), gradient = at::zeros({5, 8});

  void run() const {
    kept.copy_(ops::dropout(at::ones({5, 8}), 0.5, /*training=*/true));
    const Tensor in = x.detach().requires_grad_();
    const Tensor y = ops::dropout_add_norm(in, bias, residual, gamma, beta, 1e-5, 0.5, true);
    const Tensor z = ops::dropout(y, 0.3, true);
    gradient.copy_(torch::autograd::grad({z.square().sum()}, {in})[0]);
  }
};

std::vector<Tensor> results(const Step& step) { return {step.kept.clone(), step.gradient.clone()}; }

}  // namespace

TEST_CASE("step seeds: the replays of a step draw what ordinary steps would draw") {
  Counts counts;
  OperatorRecorder recorder(counts);
  const Step step;
  torch::manual_seed(4);
  std::vector<std::vector<Tensor>> expected;
  for (int i = 0; i < 4; ++i) {
    step.run();
    expected.push_back(results(step));
  }
  const Tensor after = at::randint(1 << 30, {4});
  CHECK_FALSE(at::equal(expected[0][0], expected[1][0]));

  torch::manual_seed(4);
  ops::StepSeeds seeds(at::kCPU);
  GraphRecorder::Recording made;
  {
    const ops::StepSeeds::Recording recording(seeds);
    made = recorder.record([&] {
      step.run();
      recording.check_draws();
    });
  }
  REQUIRE_MESSAGE(made.graph, made.failure);
  CHECK(seeds.count() == 3);
  for (const auto& of_step : expected) {
    seeds.draw();
    made.graph->replay();
    CHECK(at::equal(step.kept, of_step[0]));
    CHECK(at::equal(step.gradient, of_step[1]));
  }
  CHECK(at::equal(at::randint(1 << 30, {4}), after));
}

TEST_CASE("step seeds: a replay repeats a seed that is passed as a number") {
  Counts counts;
  OperatorRecorder recorder(counts);
  const Step step;
  const auto made = recorder.record([&] { step.run(); });  // without slots for the seeds
  REQUIRE_MESSAGE(made.graph, made.failure);
  made.graph->replay();
  const Tensor first = step.kept.clone();
  made.graph->replay();
  CHECK(at::equal(step.kept, first));
}

TEST_CASE("step seeds: a recomputed function uses the seeds of its first run") {
  ops::StepSeeds seeds(at::kCPU);
  const ops::StepSeeds::Recording recording(seeds);
  const Tensor x = at::ones({4, 16}).requires_grad_();
  const Tensor y =
      checkpoint([](const Tensor& of) { return ops::dropout(of, 0.5, true).square(); }, x);
  const Tensor z = ops::dropout(y, 0.5, true);
  CHECK(seeds.count() == 2);
  (void)torch::autograd::grad({z.sum()}, {x});
  CHECK(seeds.count() == 2);  // the second run of the function has drawn no new seed
  CHECK(code_of([&] { recording.check_draws(); }) == "none");
}

TEST_CASE(
    "step seeds: other random numbers of the host are refused, and the generator is set back") {
  torch::manual_seed(9);
  const Tensor next = at::rand({3});
  torch::manual_seed(9);
  ops::StepSeeds seeds(at::kCPU);
  {
    const ops::StepSeeds::Recording recording(seeds);
    (void)ops::dropout(at::ones({2, 4}), 0.5, true);
    recording.check_draws();
    (void)at::rand({1});
    CHECK(code_of([&] { recording.check_draws(); }) == "device.graph");
  }
  CHECK(at::equal(at::rand({3}), next));
  {
    const ops::StepSeeds::Recording recording(seeds);
    torch::manual_seed(77);
    CHECK(code_of([&] { (void)ops::dropout(at::ones({2, 4}), 0.5, true); }) == "device.graph");
  }
  CHECK_FALSE(ops::StepSeeds::recorded_slot_of(1).has_value());
}

TEST_CASE("step seeds: attention on the CPU, whose seed is a number, is refused") {
  ops::StepSeeds seeds(at::kCPU);
  const ops::StepSeeds::Recording recording(seeds);
  const Tensor x = at::randn({2, 3, 8});
  CHECK_THROWS_AS(ops::attention(x, x, x, ops::KeyMask{Tensor()}, 2, 0.1, true), c10::Error);
}

}  // namespace ops_step_seeds_test
