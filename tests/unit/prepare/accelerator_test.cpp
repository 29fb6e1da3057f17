#include "hasten/accelerator.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/data/column_dataset.h"
#include "hasten/data/loader.h"
#include "prepare/accelerator_listener.h"

namespace prepare_accelerator_test {

using namespace hasten;
using torch::optim::SGDOptions;

namespace {

struct LineImpl : torch::nn::Module {
  LineImpl() : layer(register_module("layer", torch::nn::Linear(3, 1))) {
    const torch::NoGradGuard no_grad;
    layer->weight.fill_(0.5);
    layer->bias.zero_();
  }
  at::Tensor forward(const at::Tensor& x) { return layer->forward(x); }
  torch::nn::Linear layer;
};
TORCH_MODULE(Line);

std::vector<at::Tensor> rows(std::int64_t batches, std::int64_t size = 4) {
  torch::manual_seed(3);
  std::vector<at::Tensor> out;
  for (std::int64_t i = 0; i < batches; ++i) out.push_back(at::randn({size, 3}));
  return out;
}

}  // namespace

TEST_CASE("accelerator: a listener observes the Accelerators that are constructed later") {
  struct Counter : StepObserver {
    void on_step() override { ++steps; }
    int steps = 0;
  };
  const auto counter = std::make_shared<Counter>();
  const auto make_step = [](Accelerator& accelerator) {
    Line net;
    torch::optim::SGD sgd(net->parameters(), SGDOptions(0.1));
    auto data = rows(1);
    auto [model, optimizer, loader] = accelerator.prepare(net, sgd, data);
    for (auto& x : loader) {
      accelerator.backward(model(x).square().mean());
      optimizer.step();
    }
  };
  Accelerator earlier({.cpu = true});
  set_accelerator_listener([&](StepObservers& observers) { observers.add(counter); });
  Accelerator observed({.cpu = true});
  set_accelerator_listener({});
  Accelerator later({.cpu = true});
  for (Accelerator* const each : {&earlier, &observed, &later}) make_step(*each);
  CHECK(counter->steps == 1);
}

TEST_CASE("accelerator: the prepared loop trains to the same weights as the plain one") {
  Line plain, net;
  torch::optim::SGD plain_sgd(plain->parameters(), SGDOptions(0.1)),
      sgd(net->parameters(), SGDOptions(0.1));
  auto batches = rows(5);
  for (const auto& x : batches) {
    plain_sgd.zero_grad();
    plain(x).square().mean().backward();
    plain_sgd.step();
  }
  Accelerator accelerator({.cpu = true});
  auto data = rows(5);
  auto [model, optimizer, loader] = accelerator.prepare(net, sgd, data);
  for (auto& x : loader) {
    optimizer.zero_grad();
    accelerator.backward(model(x).square().mean());
    optimizer.step();
  }
  CHECK(at::equal(net->layer->weight, plain->layer->weight));
  CHECK(optimizer.steps() == 5);
}

TEST_CASE("accelerator: holders, shared pointers and modules on the stack are prepared") {
  Accelerator accelerator({.cpu = true});
  Line holder;
  auto shared = std::make_shared<LineImpl>();
  LineImpl on_stack;
  auto [a, b, c, d] = accelerator.prepare(holder, shared, on_stack, std::make_shared<LineImpl>());
  const at::Tensor x = at::ones({1, 3});
  for (const at::Tensor& y : {a(x), b(x), c(x), d(x)})
    CHECK(y.item<double>() == doctest::Approx(1.5));
  static_assert(std::is_same_v<decltype(a), PreparedModel<LineImpl>>);
  static_assert(std::is_same_v<decltype(c), PreparedModel<LineImpl>>);
  auto e = std::get<0>(accelerator.prepare(a));
  CHECK(e.unwrap() == a.unwrap());
}

TEST_CASE("accelerator: a prepared model runs the hooks of its module") {
  Line net;
  torch::optim::SGD sgd(net->parameters(), SGDOptions(0.1));
  Accelerator accelerator({.cpu = true});
  auto data = rows(1);
  auto [model, optimizer, loader] = accelerator.prepare(net, sgd, data);
  at::Tensor output, gradient;
  const HookHandle forward = register_forward_hook(
      *net, [&](torch::nn::Module&, const std::vector<at::Tensor>&,
                std::vector<at::Tensor>& outputs) { output = outputs.at(0).detach(); });
  const HookHandle backward = register_full_backward_hook(
      *net, [&](torch::nn::Module&, std::vector<at::Tensor>&,
                const std::vector<at::Tensor>& grad_outputs) { gradient = grad_outputs.at(0); });
  for (auto& x : loader) {
    const at::Tensor y = model(x);
    CHECK(at::equal(y, output));
    accelerator.backward(y.sum());
    CHECK(gradient.eq(1).all().item<bool>());
  }
}

TEST_CASE("accelerator: a window averages its micro-batches, and the last one ends with the data") {
  Line whole, net;
  torch::optim::SGD plain_sgd(whole->parameters(), SGDOptions(0.1)),
      sgd(net->parameters(), SGDOptions(0.1));
  const auto all = rows(5);
  for (const auto& [first, last] : {std::pair{0, 3}, std::pair{3, 5}}) {
    plain_sgd.zero_grad();
    const at::Tensor x = at::cat(std::vector<at::Tensor>(all.begin() + first, all.begin() + last));
    whole(x).square().mean().backward();
    plain_sgd.step();
  }
  Accelerator accelerator({.gradient_accumulation_steps = 3, .cpu = true});
  auto data = rows(5);
  auto [model, optimizer, loader] = accelerator.prepare(net, sgd, data);
  std::vector<bool> closed;
  for (auto& x : loader) {
    const auto guard = accelerator.accumulate(model);
    optimizer.zero_grad();  // must keep the window's gradients, even though it comes first
    accelerator.backward(model(x).square().mean());
    optimizer.step();
    closed.push_back(accelerator.sync_gradients());
  }
  CHECK(closed == std::vector<bool>{false, false, true, false, true});
  CHECK(optimizer.steps() == 2);
  CHECK((net->layer->weight - whole->layer->weight).abs().max().item<double>() < 1e-6);
}

TEST_CASE("accelerator: backward with items weights micro-batches by them") {
  Line whole, net;
  torch::optim::SGD plain_sgd(whole->parameters(), SGDOptions(0.1)),
      sgd(net->parameters(), SGDOptions(0.1));
  const std::vector<at::Tensor> parts = {rows(1, 7)[0], rows(1, 2)[0]};
  whole(at::cat(parts)).square().mean().backward();
  plain_sgd.step();
  Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
  auto data = parts;
  auto [model, optimizer, loader] = accelerator.prepare(net, sgd, data);
  for (auto& x : loader) {
    const auto guard = accelerator.accumulate(model);
    const auto items = static_cast<double>(x.size(0));
    accelerator.backward(model(x).square().mean(), items);
    optimizer.step();
  }
  CHECK((net->layer->weight - whole->layer->weight).abs().max().item<double>() < 1e-6);
}

TEST_CASE("accelerator: two models of one loop have separate windows") {
  Line first, second;
  torch::optim::SGD sgd1(first->parameters(), SGDOptions(0.1)),
      sgd2(second->parameters(), SGDOptions(0.1));
  Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
  auto data = rows(4);
  auto [g, d, opt_g, opt_d, loader] = accelerator.prepare(first, second, sgd1, sgd2, data);
  std::vector<int> steps;
  for (auto& x : loader) {
    {
      const auto guard = accelerator.accumulate(d);
      accelerator.backward(d(x).square().mean());
      opt_d.step();
      opt_d.zero_grad();
    }
    {
      const auto guard = accelerator.accumulate(g);
      accelerator.backward(g(x).square().mean());
      opt_g.step();
      opt_g.zero_grad();
    }
    steps.push_back(static_cast<int>(opt_d.steps() * 10 + opt_g.steps()));
  }
  CHECK(steps == std::vector<int>{0, 11, 11, 22});
}

TEST_CASE("accelerator: two losses of one micro-batch count as one micro-batch") {
  for (const std::int64_t steps : {1, 2}) {
    Line whole, net;
    torch::optim::SGD plain_sgd(whole->parameters(), SGDOptions(0.1)),
        sgd(net->parameters(), SGDOptions(0.1));
    const auto all = rows(2);
    Accelerator accelerator({.gradient_accumulation_steps = steps, .cpu = true});
    auto data = rows(2);
    auto [model, optimizer, loader] = accelerator.prepare(net, sgd, data);
    for (auto& x : loader) {
      const auto guard = accelerator.accumulate(model);
      accelerator.backward(model(x).square().mean());
      accelerator.backward(model(x).abs().mean());
      optimizer.step();
      optimizer.zero_grad();
    }
    for (std::int64_t first = 0; first < 2; first += steps) {
      for (std::int64_t i = first; i < first + steps; ++i) {
        const at::Tensor& x = all[static_cast<std::size_t>(i)];
        ((whole(x).square().mean() + whole(x).abs().mean()) / static_cast<double>(steps))
            .backward();
      }
      plain_sgd.step();
      plain_sgd.zero_grad();
    }
    CHECK((net->layer->weight - whole->layer->weight).abs().max().item<double>() < 1e-6);
  }
}

TEST_CASE("accelerator: zero_grad outside a scope keeps the window, and free_memory ends all") {
  Line first, second;
  torch::optim::SGD sgd1(first->parameters(), SGDOptions(0.1)),
      sgd2(second->parameters(), SGDOptions(0.1));
  Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
  auto [a, b, opt_a, opt_b] = accelerator.prepare(first, second, sgd1, sgd2);
  const at::Tensor x = rows(1)[0];
  {
    const auto guard = accelerator.accumulate(a);
    accelerator.backward(a(x).mean());
  }
  {
    const auto guard = accelerator.accumulate(b);
    accelerator.backward(b(x).mean());
    opt_b.step();
  }
  opt_a.zero_grad();
  CHECK(first->layer->weight.grad().defined());
  accelerator.free_memory();
  opt_a.zero_grad();
  CHECK_FALSE(first->layer->weight.grad().defined());
}

TEST_CASE("accelerator: an evaluation inside the training loop does not close its window") {
  Line net;
  torch::optim::SGD sgd(net->parameters(), SGDOptions(0.1));
  Accelerator accelerator({.gradient_accumulation_steps = 4, .cpu = true});
  auto train = rows(8), eval = rows(2);
  auto [model, optimizer, train_loader, eval_loader] = accelerator.prepare(net, sgd, train, eval);
  std::vector<std::int64_t> steps;
  for (auto& x : train_loader) {
    for (auto& y : eval_loader) model(y);
    const auto guard = accelerator.accumulate(model);
    accelerator.backward(model(x).square().mean());
    optimizer.step();
    optimizer.zero_grad();
    steps.push_back(optimizer.steps());
  }
  CHECK(steps == std::vector<std::int64_t>{0, 0, 0, 1, 1, 1, 1, 2});
}

TEST_CASE("accelerator: a schedule counts optimizer steps, whether prepared or not") {
  Line net;
  torch::optim::SGD sgd(net->parameters(), SGDOptions(1.0));
  Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
  auto data = rows(8);
  auto [model, optimizer, loader] = accelerator.prepare(net, sgd, data);
  auto scheduler = get_scheduler("linear", optimizer, 0, 4);
  std::vector<double> rates;
  for (auto& x : loader) {
    const auto guard = accelerator.accumulate(model);
    accelerator.backward(model(x).square().mean());
    optimizer.step();
    scheduler.step();
    optimizer.zero_grad();
    rates.push_back(optimizer->param_groups()[0].options().get_lr());
  }
  CHECK(rates == std::vector<double>{1.0, 0.75, 0.75, 0.5, 0.5, 0.25, 0.25, 0.0});
}

TEST_CASE("accelerator: torch::data loaders and hasten loaders are prepared the same way") {
  Accelerator accelerator({.cpu = true});
  auto torch_loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      torch::data::datasets::TensorDataset(at::arange(10))
          .map(torch::data::transforms::Stack<torch::data::TensorExample>()),
      4);
  auto ours = make_loader(ColumnDataset({{"x", at::arange(10)}}), {.batch_size = 4});
  auto [a, b] = accelerator.prepare(torch_loader, ours);
  std::vector<std::int64_t> sizes;
  for (auto& batch : a) sizes.push_back(batch.data.size(0));
  for (auto& batch : b) sizes.push_back(batch.at("x").size(0));
  CHECK(sizes == std::vector<std::int64_t>{4, 4, 2, 4, 4, 2});
  CHECK(b.size() == 3);
}

TEST_CASE("accelerator: mixed precision runs in bfloat16 and keeps weights in float") {
  Line net;
  torch::optim::SGD sgd(net->parameters(), SGDOptions(0.1));
  Accelerator accelerator({.mixed_precision = Precision::bf16, .cpu = true});
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  const at::Tensor y = model(at::ones({2, 3}));
  CHECK((y.scalar_type() == at::kBFloat16));
  accelerator.backward(y.to(at::kFloat).mean());
  CHECK((net->layer->weight.grad().scalar_type() == at::kFloat));
  optimizer.step();
  Accelerator other({.mixed_precision = Precision::bf16, .cpu = true});
  CHECK_THROWS_AS(other.backward(net(at::ones({2, 3})).mean()), UsageError);
  const auto guard = other.autocast();
  other.backward(net(at::ones({2, 3})).to(at::kFloat).mean());
}

TEST_CASE("accelerator: two Accelerators with different settings work in one process") {
  Line first, second;
  Accelerator bf16(
      {.mixed_precision = Precision::bf16, .gradient_accumulation_steps = 7, .cpu = true}),
      plain({.cpu = true});
  auto [a] = bf16.prepare(first);
  auto [b] = plain.prepare(second);
  CHECK((a(at::ones({1, 3})).scalar_type() == at::kBFloat16));
  CHECK((b(at::ones({1, 3})).scalar_type() == at::kFloat));
  const auto guard = bf16.accumulate(a);
  CHECK_FALSE(bf16.sync_gradients());
  CHECK(plain.sync_gradients());
}

TEST_CASE("accelerator: errors for invalid calls describe the cause") {
  CHECK_THROWS_AS(Accelerator({.gradient_accumulation_steps = 0}), UsageError);
  Accelerator accelerator({.cpu = true});
  CHECK_THROWS_AS(accelerator.backward(at::ones({3}).requires_grad_()), UsageError);
  Line net;
  auto [model] = accelerator.prepare(net);
  const auto guard = accelerator.accumulate(model);
  CHECK_THROWS_AS((void)accelerator.accumulate(model), UsageError);
}

TEST_CASE("accelerator: an environment flag accepts only its documented values") {
  setenv("ACCELERATE_USE_CPU", "yes", 1);
  CHECK(Accelerator().device().is_cpu());
  setenv("ACCELERATE_USE_CPU", "maybe", 1);
  CHECK_THROWS_AS(Accelerator(), ConfigError);
  unsetenv("ACCELERATE_USE_CPU");
}

TEST_CASE("accelerator: the collectives of a group of one are the identity") {
  Accelerator accelerator({.cpu = true});
  const at::Tensor x = at::arange(6).view({3, 2});
  CHECK(at::equal(accelerator.gather(x), x));
  CHECK(at::equal(accelerator.gather_for_metrics(x), x));
  CHECK(accelerator.gather(at::scalar_tensor(2.0)).sizes() == at::IntArrayRef({1}));
  CHECK(at::equal(accelerator.group().reduce(x, Reduction::mean), x));
  CHECK(accelerator.is_main_process());
  CHECK(accelerator.is_last_process());
  bool ran = false;
  accelerator.on_main_process([&] { ran = true; });
  CHECK(ran);
}

TEST_CASE("accelerator: free_memory releases objects; clip and profile accept prepared models") {
  Accelerator accelerator({.cpu = true});
  auto net = std::make_shared<LineImpl>();
  auto [model] = accelerator.prepare(net);
  const TemporaryDirectory folder;
  const std::filesystem::path trace = folder.path() / "trace.json";
  {
    const auto profile = accelerator.profile(trace);
    accelerator.backward(model(at::ones({4, 3}) * 100).square().mean());
  }
  const auto json = nlohmann::json::parse(read_file(trace));
  CHECK(json.contains("traceEvents"));
  CHECK(json["traceEvents"].size() > 10);
  CHECK(accelerator.clip_grad_norm_(model->parameters(), 1.0) > 1.0);
  CHECK(gradient_norm(model->parameters()) == doctest::Approx(1.0).epsilon(1e-3));
  const std::weak_ptr<LineImpl> watch = net;
  net.reset();
  accelerator.free_memory(model);
  CHECK(watch.expired());
}

TEST_CASE("accelerator: the main process's helpers run in a single process") {
  const Accelerator accelerator({.cpu = true});
  int ran = 0;
  const auto count = [&] { ++ran; };
  accelerator.on_main_process(count);
  accelerator.on_local_main_process(count);
  accelerator.on_last_process(count);
  accelerator.on_process(0, count);
  CHECK(ran == 4);
  accelerator.on_process(1, count);
  CHECK(ran == 4);
  {
    const auto turn = accelerator.main_process_first();
    const auto local = accelerator.local_main_process_first();
  }
  CHECK(accelerator.get_logger("train", LogLevel::error).level() == LogLevel::error);
}

}  // namespace prepare_accelerator_test
