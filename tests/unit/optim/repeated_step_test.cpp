// A step of AdamW that a graph repeats gives the same bits as an ordinary step.
#include "hasten/optim/detail/repeated_step.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include "hasten/optim/adamw.h"
#include "unit/code_of.h"
#include "unit/device/operator_graphs.h"

namespace optim_repeated_step_test {

using namespace hasten;
using namespace hasten::operator_graphs;
using at::Tensor;

namespace {

// Two groups with their own options, and gradients that change in place. If `is_tied`, the second
// group repeats a weight of the first.
struct Training {
  explicit Training(bool is_tied = false) {
    torch::manual_seed(3);
    for (const std::int64_t size : {7, 40, 3})
      weights.push_back(at::randn({size}).requires_grad_());
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::vector<Tensor>{weights[0], weights[1]},
                        AdamWOptions(0.1).weight_decay(0.02).clone());
    std::vector<Tensor> second = {weights[2]};
    if (is_tied) second.push_back(weights[1]);
    groups.emplace_back(second, AdamWOptions(0.3).weight_decay(0.0).clone());
    adamw = std::make_unique<AdamW>(groups);
  }

  AdamWOptions& options(std::size_t group) {
    return static_cast<AdamWOptions&>(adamw->param_groups()[group].options());
  }
  // Sets the gradients, the learning rates and the factor of a step.
  void begin(int step) {
    torch::manual_seed(100 + step);
    for (const Tensor& each : gradients) each.copy_(at::randn(each.sizes()));
    options(0).lr(0.1 / step);
    options(1).lr(0.3 / (step + 1));
    factor.fill_(1.0 / (1 + step));
  }
  void set_gradients() {
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i].mutable_grad() = gradients[i];
  }
  void clear_gradients() {
    for (const Tensor& each : weights) each.mutable_grad().reset();
  }
  void ordinary_step(int step) {
    begin(step);
    set_gradients();
    adamw->scale_next_step(factor);
    adamw->step();
    clear_gradients();
  }
  // Records the operations of a step.
  GraphRecorder::Recording record(RepeatedStep& repeated) {
    GraphRecorder::Recording made = recorder.record([&] {
      set_gradients();
      adamw->scale_next_step(factor);
      repeated.run();
    });
    clear_gradients();
    return made;
  }
  void replay(int step, RepeatedStep& repeated, RecordedGraph& graph) {
    begin(step);
    repeated.write_numbers();
    graph.replay();
    repeated.mark_replayed();
    adamw->step();
  }
  std::vector<Tensor> state() const {
    std::vector<Tensor> all;
    for (const Tensor& each : weights) {
      const auto& of = static_cast<const torch::optim::AdamWParamState&>(
          *adamw->state().at(each.unsafeGetTensorImpl()));
      all.insert(all.end(), {each.detach().clone(), of.exp_avg().clone(), of.exp_avg_sq().clone(),
                             at::scalar_tensor(of.step())});
    }
    return all;
  }

  std::vector<Tensor> weights;
  std::vector<Tensor> gradients = {at::zeros({7}), at::zeros({40}), at::zeros({3})};
  Tensor factor = at::ones({});
  std::unique_ptr<AdamW> adamw;
  Counts counts;
  OperatorRecorder recorder{counts};
};

void check_equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(at::equal(a[i], b[i]));
}

}  // namespace

TEST_CASE("repeated step: rates, counts and factors of each replay are those of its step") {
  const GraphDevice device;
  const DeviceReplacement replacement(device);
  Training ordinary, repeats;
  for (int step = 1; step <= 2; ++step) {
    ordinary.ordinary_step(step);
    repeats.ordinary_step(step);
  }
  const auto repeated = repeats.adamw->repeated_step();
  const auto made = repeats.record(*repeated);
  REQUIRE_MESSAGE(made.graph, made.failure);
  check_equal(repeats.state(), ordinary.state());  // recording has changed nothing
  for (int step = 3; step <= 8; ++step) {
    ordinary.ordinary_step(step);
    CHECK(repeated->can_repeat());
    const auto version = repeats.weights[0]._version();
    repeats.replay(step, *repeated, *made.graph);
    check_equal(repeats.state(), ordinary.state());
    CHECK(repeats.weights[0]._version() > version);
  }
  // An ordinary step may follow, and a replay after it has the next step count.
  ordinary.ordinary_step(9);
  repeats.ordinary_step(9);
  check_equal(repeats.state(), ordinary.state());
  CHECK(repeated->can_repeat());
  ordinary.ordinary_step(10);
  repeats.replay(10, *repeated, *made.graph);
  check_equal(repeats.state(), ordinary.state());
}

TEST_CASE("repeated step: a weight of two groups is stepped with the first one") {
  const GraphDevice device;
  const DeviceReplacement replacement(device);
  Training ordinary(/*is_tied=*/true), repeats(/*is_tied=*/true);
  for (Training* each : {&ordinary, &repeats}) each->ordinary_step(1);
  const auto repeated = repeats.adamw->repeated_step();
  const auto made = repeats.record(*repeated);
  REQUIRE_MESSAGE(made.graph, made.failure);
  for (int step = 2; step <= 3; ++step) {
    ordinary.ordinary_step(step);
    REQUIRE(repeated->can_repeat());
    repeats.replay(step, *repeated, *made.graph);
    check_equal(repeats.state(), ordinary.state());
  }
}

TEST_CASE("repeated step: parameters that share a count and differ later are noticed") {
  const GraphDevice device;
  const DeviceReplacement replacement(device);
  Training training;
  training.ordinary_step(1);
  const auto repeated = training.adamw->repeated_step();
  const auto made = training.record(*repeated);
  REQUIRE_MESSAGE(made.graph, made.failure);
  training.weights[0].mutable_grad() = training.gradients[0];
  training.adamw->step();  // for one parameter only
  training.clear_gradients();
  CHECK_FALSE(repeated->can_repeat());
  CHECK(code_of([&] { repeated->write_numbers(); }) == "optim.repeated-step");
}

TEST_CASE("repeated step: an ordinary step that is repeated uses old numbers") {
  const GraphDevice device;
  const DeviceReplacement replacement(device);
  Training ordinary, repeats;
  for (Training* each : {&ordinary, &repeats}) each->ordinary_step(1);
  repeats.begin(2);
  const auto made = repeats.recorder.record([&] {
    repeats.set_gradients();
    repeats.adamw->scale_next_step(repeats.factor);
    repeats.adamw->step();
  });
  REQUIRE_MESSAGE(made.graph, made.failure);
  for (int step = 2; step <= 3; ++step) {
    ordinary.ordinary_step(step);
    repeats.begin(step);
    made.graph->replay();
  }
  CHECK_FALSE(at::equal(ordinary.weights[0], repeats.weights[0]));
}

TEST_CASE("repeated step: a changed option, moment or parameter is noticed") {
  const GraphDevice device;
  const DeviceReplacement replacement(device);
  const auto is_noticed = [](const std::function<void(Training&)>& change) {
    Training training;
    training.ordinary_step(1);
    const auto repeated = training.adamw->repeated_step();
    const auto made = training.record(*repeated);
    REQUIRE_MESSAGE(made.graph, made.failure);
    REQUIRE(repeated->can_repeat());
    change(training);
    return !repeated->can_repeat();
  };
  CHECK_FALSE(is_noticed([](Training& t) { t.options(0).lr(0.7); }));
  CHECK(is_noticed([](Training& t) { t.options(0).weight_decay(0.5); }));
  CHECK(is_noticed([](Training& t) { t.options(1).betas({0.8, 0.9}); }));
  CHECK(is_noticed([](Training& t) { t.options(1).eps(1e-4); }));
  CHECK(is_noticed([](Training& t) { t.adamw->state().clear(); }));
  CHECK(is_noticed([](Training& t) { t.weights[0].set_data(t.weights[0].clone()); }));
  CHECK(is_noticed([](Training& t) {
    auto& state = static_cast<torch::optim::AdamWParamState&>(
        *t.adamw->state().at(t.weights[1].unsafeGetTensorImpl()));
    state.exp_avg(state.exp_avg().clone());
  }));
  CHECK(is_noticed([](Training& t) {
    t.adamw->add_param_group(torch::optim::OptimizerParamGroup({at::ones({2})}));
  }));
}

TEST_CASE("repeated step: what a graph cannot repeat is refused") {
  {
    Training on_cpu;
    CHECK(code_of([&] { (void)on_cpu.adamw->repeated_step(); }) == "optim.repeated-step");
  }
  const GraphDevice device;
  const DeviceReplacement replacement(device);
  Training fresh;
  const auto without_moments = fresh.adamw->repeated_step();
  fresh.set_gradients();
  CHECK(code_of([&] { without_moments->run(); }) == "optim.repeated-step");
  fresh.adamw->step();
  const auto repeated = fresh.adamw->repeated_step();
  fresh.adamw->scale_next_step(0.5);  // a factor in host memory
  CHECK(code_of([&] { repeated->run(); }) == "optim.repeated-step");
  fresh.adamw->scale_next_step(1.0);
  CHECK(code_of([&] { repeated->run(); }) == "none");
}

TEST_CASE("repeated step: a step that is destroyed before it was counted is not counted") {
  const GraphDevice device;
  const DeviceReplacement replacement(device);
  Training training;
  training.ordinary_step(1);
  {
    const auto repeated = training.adamw->repeated_step();
    repeated->mark_replayed();
  }
  const Tensor before = training.weights[0].detach().clone();
  training.ordinary_step(2);
  CHECK_FALSE(at::equal(training.weights[0], before));
}

}  // namespace optim_repeated_step_test
