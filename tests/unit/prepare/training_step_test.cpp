// A TrainingStep computes what an ordinary loop computes, bit for bit, with and without graphs. The
// device repeats operators on the CPU with the recorded tensors and numbers
// (unit/device/operator_graphs.h).
#include "hasten/prepare/detail/training_step.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/anatomy/report.h"
#include "hasten/data/detail/packed_rows.h"
#include "hasten/ops/ops.h"
#include "hasten/optim/adamw.h"
#include "unit/code_of.h"
#include "unit/device/operator_graphs.h"

namespace prepare_training_step_test {

using namespace hasten;
using namespace hasten::operator_graphs;
using Example = torch::data::Example<>;

namespace {

struct Net : torch::nn::Module {
  Net() {
    torch::manual_seed(3);
    first = register_module("first", torch::nn::Linear(4, 8));
    last = register_module("last", torch::nn::Linear(8, 2));
  }
  at::Tensor forward(const at::Tensor& x) {
    return last(ops::dropout(at::relu(first(x)), 0.2, is_training()));
  }
  torch::nn::Linear first = nullptr, last = nullptr;
};

at::Tensor loss_of(Net& net, const Example& batch) {
  return at::mse_loss(net.forward(batch.data), batch.target);
}

std::vector<Example> batches_of(const std::vector<std::int64_t>& rows) {
  torch::manual_seed(17);
  std::vector<Example> all;
  for (const std::int64_t count : rows)
    all.emplace_back(at::randn({count, 4}), at::randn({count, 2}));
  return all;
}

// An Accelerator on the CPU with a prepared net and its optimizer. A GraphDevice may replace the
// CPU.
struct Setup {
  explicit Setup(AcceleratorOptions options = {}, double lr = 0.05)
      : accelerator([&] {
          options.cpu = true;
          return options;
        }()),
        net(std::make_shared<Net>()),
        adamw(net->parameters(), AdamWOptions(lr).weight_decay(0.1)),
        prepared(accelerator.prepare(net, adamw)) {
    torch::manual_seed(41);
  }

  PreparedModel<Net>& model() { return std::get<0>(prepared); }
  PreparedOptimizer& optimizer() { return std::get<1>(prepared); }
  void set_rate(double lr) { static_cast<AdamWOptions&>(adamw.param_groups()[0].options()).lr(lr); }
  std::vector<at::Tensor> weights() const {
    std::vector<at::Tensor> all;
    for (const at::Tensor& each : net->parameters()) all.push_back(each.detach().clone());
    return all;
  }

  Accelerator accelerator;
  std::shared_ptr<Net> net;
  AdamW adamw;
  std::tuple<PreparedModel<Net>, PreparedOptimizer> prepared;
};

struct Run {
  std::vector<double> losses, norms;
  std::vector<at::Tensor> weights;
  std::int64_t replays = 0;
};

void check_equal(const Run& a, const Run& b) {
  REQUIRE_FALSE(a.losses.empty());
  CHECK(a.losses == b.losses);
  CHECK(a.norms == b.norms);
  REQUIRE(a.weights.size() == b.weights.size());
  for (std::size_t i = 0; i < a.weights.size(); ++i) CHECK(at::equal(a.weights[i], b.weights[i]));
}

void check_close(const Run& a, const Run& b) {
  REQUIRE(a.losses.size() == b.losses.size());
  REQUIRE(a.norms.size() == b.norms.size());
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    CHECK(a.losses[i] == doctest::Approx(b.losses[i]).epsilon(1e-5));
    CHECK(a.norms[i] == doctest::Approx(b.norms[i]).epsilon(1e-5));
  }
  REQUIRE(a.weights.size() == b.weights.size());
  for (std::size_t i = 0; i < a.weights.size(); ++i)
    CHECK(at::allclose(a.weights[i], b.weights[i], 1e-5, 1e-6));
}

// The learning rate of a step. It is different in each step.
double rate_of(std::size_t step) { return 0.05 / static_cast<double>(step + 1); }

// Trains in an ordinary loop over windows of `window` batches.
Run ordinary_loop(const std::vector<Example>& batches, std::int64_t window, double max_norm) {
  Setup setup({.gradient_accumulation_steps = window});
  Run run;
  std::vector<at::Tensor> losses;
  std::size_t steps = 0;
  for (const Example& batch : batches) {
    const auto scope = setup.accelerator.accumulate(setup.model());
    const at::Tensor loss = setup.model().call([&](Net& net) { return loss_of(net, batch); });
    setup.accelerator.backward(loss);
    losses.push_back(loss.detach());
    setup.set_rate(rate_of(steps));
    if (max_norm > 0 && setup.accelerator.sync_gradients())
      run.norms.push_back(setup.accelerator.clip_grad_norm_(setup.net->parameters(), max_norm));
    setup.optimizer().step();
    setup.optimizer().zero_grad();
    if (!setup.accelerator.sync_gradients()) continue;
    run.losses.push_back(losses.size() == 1 ? losses[0].item<double>()
                                            : at::stack(losses).mean().item<double>());
    losses.clear();
    ++steps;
  }
  run.weights = setup.weights();
  return run;
}

// Makes the same steps with a TrainingStep.
Run step_loop(const std::vector<Example>& batches, std::int64_t window, double max_norm,
              bool cuda_graph) {
  const GraphDevice device;
  const DeviceReplacement replacement(device);
  Setup setup({.gradient_accumulation_steps = window, .cuda_graph = cuda_graph});
  TrainingStep step = setup.accelerator.training_step(setup.model(), setup.optimizer(), loss_of,
                                                      {.max_grad_norm = max_norm});
  Run run;
  for (std::size_t i = 0; i < batches.size(); i += static_cast<std::size_t>(window)) {
    setup.set_rate(rate_of(run.losses.size()));
    const std::vector<Example> micro_batches(
        batches.begin() + static_cast<std::ptrdiff_t>(i),
        batches.begin() + static_cast<std::ptrdiff_t>(i) + window);
    const StepResult result = window == 1 ? step(micro_batches[0]) : step.run_window(micro_batches);
    run.losses.push_back(result.loss);
    if (max_norm > 0) run.norms.push_back(result.grad_norm);
  }
  CHECK(setup.optimizer().steps() == std::ssize(run.losses));
  CHECK(step.missing_graph_reason() == (cuda_graph ? "" : "AcceleratorOptions::cuda_graph is off"));
  run.weights = setup.weights();
  run.replays = device.counts.replays;
  return run;
}

// Returns why the steps of a loop have no graph.
std::string reason_of(const AcceleratorOptions& options,
                      const std::function<void(Setup&)>& change = {}) {
  const GraphDevice device;
  const DeviceReplacement replacement(device);
  Setup setup(options);
  if (change) change(setup);
  TrainingStep step = setup.accelerator.training_step(setup.model(), setup.optimizer(), loss_of);
  for (const Example& batch : batches_of({6, 6, 6, 6, 6})) step(batch);
  CHECK_FALSE(step.used_graph());
  return step.missing_graph_reason();
}

struct OwnBatch {
  at::Tensor x, y;
  double factor = 1;
};

}  // namespace

TEST_CASE("training step: losses, norms and weights equal those of an ordinary loop") {
  const std::vector<Example> batches = batches_of(std::vector<std::int64_t>(24, 6));
  for (const std::int64_t window : {1, 2, 3}) {
    for (const double max_norm : {0.0, 0.05}) {
      CAPTURE(window);
      CAPTURE(max_norm);
      const GraphDevice device;
      const Run loop = [&] {
        const DeviceReplacement replacement(device);
        return ordinary_loop(batches, window, max_norm);
      }();
      const Run plain = step_loop(batches, window, max_norm, false);
      const Run graphs = step_loop(batches, window, max_norm, true);
      check_equal(graphs, plain);
      if (max_norm == 0) {
        check_equal(plain, loop);
      } else {
        check_close(plain, loop);  // AdamW clips while it steps, which rounds differently
      }
      CHECK(plain.replays == 0);
      CHECK(graphs.replays == 24 / window - 3);
    }
  }
}

TEST_CASE("training step: each shape has a graph") {
  std::vector<std::int64_t> rows;
  for (int i = 0; i < 8; ++i) rows.insert(rows.end(), {6, 3});
  const std::vector<Example> batches = batches_of(rows);
  const Run plain = step_loop(batches, 1, 0.05, false), graphs = step_loop(batches, 1, 0.05, true);
  check_equal(graphs, plain);
  CHECK(graphs.replays == 13);  // all but the first three steps, which had both shapes
}

TEST_CASE("training step: more than eight shapes run without a graph") {
  std::vector<std::int64_t> rows;
  for (int i = 0; i < 3; ++i) {
    for (std::int64_t count = 1; count <= 10; ++count) rows.push_back(count);
  }
  const std::vector<Example> batches = batches_of(rows);
  const Run plain = step_loop(batches, 1, 0, false), graphs = step_loop(batches, 1, 0, true);
  check_equal(graphs, plain);
  // In the second round each shape is larger than those before, so its graph replaces theirs. In
  // the third one, the graph of the largest shape remains, and seven others are recorded.
  CHECK(graphs.replays == 10 + 8);
}

TEST_CASE("training step: a step is recorded again after the model has changed") {
  const GraphDevice device;
  const DeviceReplacement replacement(device);
  const std::vector<Example> batches = batches_of(std::vector<std::int64_t>(12, 5));
  std::vector<Run> runs(2);
  for (const bool cuda_graph : {false, true}) {
    Setup setup({.cuda_graph = cuda_graph});
    TrainingStep step = setup.accelerator.training_step(setup.model(), setup.optimizer(), loss_of);
    Run& run = runs[cuda_graph ? 1 : 0];
    for (std::size_t i = 0; i < batches.size(); ++i) {
      if (i == 6) setup.net->eval();
      if (i == 9) setup.net->first->weight.set_requires_grad(false);
      run.losses.push_back(step(batches[i]).loss);
    }
    CHECK(step.used_graph() == cuda_graph);
    run.weights = setup.weights();
  }
  check_equal(runs[1], runs[0]);
  CHECK(device.counts.recordings == 3);
}

TEST_CASE("training step: a step is recorded again after a module was replaced") {
  const GraphDevice device;
  const DeviceReplacement replacement(device);
  const std::vector<Example> batches = batches_of(std::vector<std::int64_t>(10, 5));
  std::vector<Run> runs(2);
  for (const bool cuda_graph : {false, true}) {
    Setup setup({.cuda_graph = cuda_graph});
    TrainingStep step = setup.accelerator.training_step(setup.model(), setup.optimizer(), loss_of);
    Run& run = runs[cuda_graph ? 1 : 0];
    for (std::size_t i = 0; i < batches.size(); ++i) {
      if (i == 6) {
        const torch::nn::Linear wider(8, 2);
        const torch::NoGradGuard no_grad;
        wider->weight.fill_(0.5);
        wider->bias.fill_(0.1);
        setup.net->last = setup.net->replace_module("last", wider);
      }
      run.losses.push_back(step(batches[i]).loss);
      CHECK_FALSE(setup.net->last->weight.grad().defined());
    }
    CHECK(step.used_graph() == cuda_graph);
    run.weights = setup.weights();
  }
  check_equal(runs[1], runs[0]);
  CHECK(device.counts.recordings == 2);
}

TEST_CASE("training step: a parameter of no model gets the mean gradient of a window") {
  const GraphDevice device;
  const DeviceReplacement replacement(device);
  const std::vector<Example> batches = batches_of({5, 5});
  std::vector<Run> runs(2);
  for (const bool cuda_graph : {false, true}) {
    Setup setup({.gradient_accumulation_steps = 2, .cuda_graph = cuda_graph});
    const at::Tensor temperature = torch::ones({1}).requires_grad_();
    setup.adamw.add_param_group(
        torch::optim::OptimizerParamGroup(std::vector<at::Tensor>{temperature}));
    TrainingStep step = setup.accelerator.training_step(
        setup.model(), setup.optimizer(),
        [temperature](Net& net, const Example& batch) {
          return at::mse_loss(net.forward(batch.data) * temperature, batch.target);
        },
        {.max_grad_norm = 0.05});
    Run& run = runs[cuda_graph ? 1 : 0];
    for (int i = 0; i < 6; ++i) {
      const StepResult result = step.run_window(batches);
      run.losses.push_back(result.loss);
      run.norms.push_back(result.grad_norm);
    }
    CHECK(step.used_graph() == cuda_graph);
    run.weights = setup.weights();
    run.weights.push_back(temperature.detach().clone());
  }
  check_equal(runs[1], runs[0]);
}

TEST_CASE("training step: parameters that are unfrozen or added later are trained") {
  const GraphDevice device;
  const DeviceReplacement replacement(device);
  const std::vector<Example> batches = batches_of(std::vector<std::int64_t>(14, 5));
  std::vector<Run> runs(2);
  for (const bool cuda_graph : {false, true}) {
    Setup setup({.cuda_graph = cuda_graph});
    const at::Tensor shift = torch::zeros({2}).requires_grad_();
    setup.net->first->weight.set_requires_grad(false);
    TrainingStep step = setup.accelerator.training_step(
        setup.model(), setup.optimizer(),
        [shift](Net& net, const Example& batch) {
          return at::mse_loss(net.forward(batch.data) + shift, batch.target);
        },
        {.max_grad_norm = 0.05});
    Run& run = runs[cuda_graph ? 1 : 0];
    const std::vector<at::Tensor> start = setup.weights();
    for (std::size_t i = 0; i < batches.size(); ++i) {
      if (i == 6) setup.net->first->weight.set_requires_grad(true);
      if (i == 10)
        setup.adamw.add_param_group(
            torch::optim::OptimizerParamGroup(std::vector<at::Tensor>{shift}));
      const StepResult result = step(batches[i]);
      run.losses.push_back(result.loss);
      run.norms.push_back(result.grad_norm);
    }
    CHECK(step.used_graph() == cuda_graph);
    CHECK(step.missing_graph_reason().empty() == cuda_graph);
    run.weights = setup.weights();
    CHECK_FALSE(at::equal(run.weights[0], start[0]));
    run.weights.push_back(shift.detach().clone());
    CHECK_FALSE(at::equal(shift, at::zeros({2})));
  }
  check_equal(runs[1], runs[0]);
  CHECK(device.counts.recordings == 3);
}

TEST_CASE("training step: a parameter that is unfrozen later is clipped") {
  Accelerator accelerator({.cpu = true});
  const auto net = std::make_shared<Net>();
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(1.0));
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  net->first->weight.set_requires_grad(false);
  TrainingStep step = accelerator.training_step(model, optimizer, loss_of, {.max_grad_norm = 1e-3});
  net->first->weight.set_requires_grad(true);
  const at::Tensor before = net->first->weight.detach().clone();
  step(batches_of({5})[0]);
  const double change = (net->first->weight.detach() - before).norm().item<double>();
  CHECK(change > 0);
  CHECK(change < 1.1e-3);
}

TEST_CASE("training step: a gradient of the loop does not enter the step") {
  const std::vector<Example> batches = batches_of({5, 5});
  std::vector<Run> runs(2);
  for (const bool disturbed : {false, true}) {
    Setup setup;
    TrainingStep step = setup.accelerator.training_step(setup.model(), setup.optimizer(), loss_of);
    for (const Example& batch : batches) {
      if (disturbed) setup.net->first->weight.mutable_grad() = at::ones({8, 4});
      runs[disturbed ? 1 : 0].losses.push_back(step(batch).loss);
      CHECK_FALSE(setup.net->first->weight.grad().defined());
    }
    runs[disturbed ? 1 : 0].weights = setup.weights();
  }
  check_equal(runs[1], runs[0]);
}

TEST_CASE("training step: a step that threw does not change the next one") {
  const std::vector<Example> batches = batches_of({5, 5});
  std::vector<double> norms;
  for (const int failing : {0, 1, 2}) {  // the micro-batch that throws; 0 stands for none
    CAPTURE(failing);
    Setup setup({.gradient_accumulation_steps = 2});
    setup.net->eval();  // a loss that is computed again would draw another mask
    int left = failing;
    TrainingStep step =
        setup.accelerator.training_step(setup.model(), setup.optimizer(),
                                        [&left](Net& net, const Example& batch) {
                                          if (left > 0 && --left == 0)
                                            throw std::runtime_error("no memory left");
                                          return loss_of(net, batch);
                                        },
                                        {.max_grad_norm = 1e9});
    if (failing > 0) CHECK_THROWS(step.run_window(batches));
    norms.push_back(step.run_window(batches).grad_norm);
    CHECK(setup.optimizer().steps() == 1);
  }
  CHECK(norms[0] > 0);
  CHECK(norms[1] == norms[0]);
  CHECK(norms[2] == norms[0]);
}

TEST_CASE("training step: graph steps are counted after a scope without a backward pass") {
  const GraphDevice device;
  const DeviceReplacement replacement(device);
  Setup setup({.gradient_accumulation_steps = 2, .cuda_graph = true});
  TrainingStep step = setup.accelerator.training_step(setup.model(), setup.optimizer(), loss_of);
  const std::vector<Example> batches = batches_of({5, 5});
  for (int i = 0; i < 5; ++i) step.run_window(batches);
  { const auto scope = setup.accelerator.accumulate(setup.model()); }
  step.run_window(batches);
  CHECK(step.used_graph());
  CHECK(setup.optimizer().steps() == 6);
}

TEST_CASE("training step: it says why there is no graph") {
  CHECK(reason_of({.mixed_precision = Precision::fp16, .cuda_graph = true}).find("fp16") == 0);
  CHECK(reason_of({.step_in_backward = true, .cuda_graph = true}) == "step_in_backward");
  CHECK(reason_of({.cuda_graph = true}, [](Setup& setup) {
          setup.net->first->weight.register_hook([](const at::Tensor& grad) { return grad; });
        }) == "a hook of the parameter first.weight, which runs on the host");
}

TEST_CASE("training step: a CPU has no graphs") {
  Setup setup({.cuda_graph = true});
  const TrainingStep step =
      setup.accelerator.training_step(setup.model(), setup.optimizer(), loss_of);
  CHECK(step.missing_graph_reason() == "a device (cpu) that has no graphs of operations");
}

TEST_CASE("training step: another type of batch, and a step that reads a number, have no graph") {
  const GraphDevice device;
  const DeviceReplacement replacement(device);
  const std::vector<Example> batches = batches_of(std::vector<std::int64_t>(5, 5));
  {
    Setup setup({.cuda_graph = true});
    TrainingStep step = setup.accelerator.training_step(
        setup.model(), setup.optimizer(), [](Net& net, const OwnBatch& batch) {
          return at::mse_loss(net.forward(batch.x), batch.y) * batch.factor;
        });
    step(OwnBatch{batches[0].data, batches[0].target});
    CHECK(step.missing_graph_reason().find("which may have numbers of the host") !=
          std::string::npos);
  }
  Setup setup({.cuda_graph = true});
  TrainingStep step = setup.accelerator.training_step(
      setup.model(), setup.optimizer(), [](Net& net, const Example& batch) {
        const at::Tensor loss = loss_of(net, batch);
        return loss.item<double>() > 1e9 ? loss * 2 : loss;
      });
  for (const Example& batch : batches) step(batch);
  CHECK(step.missing_graph_reason().find("a number is read while a graph is recorded") !=
        std::string::npos);
}

TEST_CASE(
    "training step: undefined tensors are a part of the shape, and sparse ones have no graph") {
  const GraphDevice device;
  const DeviceReplacement replacement(device);
  Setup setup({.cuda_graph = true});
  TrainingStep step = setup.accelerator.training_step(
      setup.model(), setup.optimizer(), [](Net& net, const std::vector<at::Tensor>& batch) {
        return net.forward(batch[0]).square().mean();
      });
  const at::Tensor x = batches_of({5})[0].data, y = at::ones({5, 4});
  for (int i = 0; i < 5; ++i) step(std::vector<at::Tensor>{x});
  CHECK(step.used_graph());
  step(std::vector<at::Tensor>{x, at::Tensor()});
  CHECK_FALSE(step.used_graph());
  step(std::vector<at::Tensor>{x, y});
  CHECK_FALSE(step.used_graph());
  CHECK(step.missing_graph_reason().empty());
  step(std::vector<at::Tensor>{x, y.to_sparse()});
  CHECK(step.missing_graph_reason() == "batches with a sparse or nested tensor");
}

TEST_CASE("training step: a model that may read the rows of packed batches has no graph") {
  const GraphDevice device;
  const DeviceReplacement replacement(device);
  Setup setup({.cuda_graph = true});
  TrainingStep step = setup.accelerator.training_step(
      setup.model(), setup.optimizer(),
      [](Net& net, const TensorDict& batch) { return net.forward(batch.at("x")).square().mean(); });
  const TensorDict batch = {{"x", batches_of({5})[0].data},
                            {kPackedRows, at::tensor({0, 2, 5}, at::kInt)}};
  for (int i = 0; i < 5; ++i) step(batch);
  CHECK_FALSE(step.used_graph());
  CHECK(step.missing_graph_reason().find("packed batches, whose rows the class") == 0);
}

TEST_CASE("training step: steps run without a graph while an anatomy records") {
  const GraphDevice device;
  const DeviceReplacement replacement(device);
  Setup setup({.cuda_graph = true});
  TrainingStep step = setup.accelerator.training_step(setup.model(), setup.optimizer(), loss_of);
  const std::vector<Example> batches = batches_of(std::vector<std::int64_t>(6, 5));
  for (const Example& batch : batches) step(batch);
  CHECK(step.used_graph());
  {
    const Anatomy anatomy = setup.accelerator.anatomy({.steps = 2});
    step(batches[0]);
    CHECK_FALSE(step.used_graph());
  }
  step(batches[0]);
  CHECK(step.used_graph());
}

TEST_CASE("training step: wrong calls are refused") {
  Setup setup({.gradient_accumulation_steps = 2});
  CHECK(code_of([&] {
          setup.accelerator.training_step(setup.model(), setup.optimizer(), LossFunction());
        }) == "prepare.no-loss");
  TrainingStep step = setup.accelerator.training_step(setup.model(), setup.optimizer(), loss_of);
  const std::vector<Example> batches = batches_of({4, 4, 4});
  CHECK(code_of([&] { step.run_window(batches); }) == "prepare.accumulation-steps");
  CHECK(code_of([&] { step.run_window(std::vector<Example>{}); }) == "prepare.accumulation-steps");
  CHECK(code_of([&] { step(std::pair<at::Tensor, at::Tensor>()); }) == "data.batch-type");
  TrainingStep without_loss = setup.accelerator.training_step(
      setup.model(), setup.optimizer(), [](Net&, const Example&) { return at::Tensor(); });
  CHECK(code_of([&] { without_loss(batches[0]); }) == "prepare.no-loss");
  {
    const auto scope = setup.accelerator.accumulate(setup.model());
    CHECK(code_of([&] { step(batches[0]); }) == "prepare.nested-accumulate");
    setup.accelerator.backward(loss_of(*setup.net, batches[0]));
  }
  CHECK(code_of([&] { step(batches[0]); }) == "prepare.open-window");
}

TEST_CASE("training step: step_in_backward is refused with clipping") {
  Setup setup({.step_in_backward = true});
  CHECK(code_of([&] {
          setup.accelerator.training_step(setup.model(), setup.optimizer(), loss_of,
                                          {.max_grad_norm = 1.0});
        }) == "prepare.step-in-backward");
}

TEST_CASE("training step: fp16 skips a step that overflows") {
  Setup setup({.mixed_precision = Precision::fp16, .grad_scaler = {.init_scale = 1e38}});
  TrainingStep step = setup.accelerator.training_step(setup.model(), setup.optimizer(), loss_of,
                                                      {.max_grad_norm = 1.0});
  step(batches_of({4})[0]);
  CHECK(setup.accelerator.optimizer_step_was_skipped());
  CHECK(setup.optimizer().steps() == 0);
}

}  // namespace prepare_training_step_test
