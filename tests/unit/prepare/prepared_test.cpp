// Objects that are prepared again while a handle of them exists.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <memory>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/data/column_dataset.h"
#include "hasten/data/loader.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/prepare/multiprocess_checks.h"

namespace prepare_prepared_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using torch::optim::SGD;
using torch::optim::SGDOptions;

namespace {

// The gradient of its bias is the number of rows of the batch, if the loss is the sum.
struct Line : torch::nn::Module {
  Line() : layer(register_module("layer", torch::nn::Linear(3, 1))) {}
  at::Tensor forward(const at::Tensor& x) { return layer->forward(x); }
  torch::nn::Linear layer;
};

using Batches = std::vector<at::Tensor>;

Batches three_batches() { return {at::ones({2, 3}), at::ones({2, 3}), at::ones({2, 3})}; }

auto rows_of_hasten(std::int64_t rows) {
  return make_loader(ColumnDataset({{"x", at::arange(rows)}}), {.batch_size = 2});
}

double rate_of(const PreparedOptimizer& optimizer) {
  return optimizer->param_groups()[0].options().get_lr();
}

}  // namespace

TEST_CASE("handles: a model on the stack stays prepared until its last handle is destroyed") {
  Line net;
  SGD sgd(net.parameters(), SGDOptions(0.1));
  Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  const at::Tensor x = at::ones({2, 3});
  {
    auto [again] = accelerator.prepare(net);
    CHECK(again.unwrap() == model.unwrap());
    const auto guard = accelerator.accumulate(again);
    accelerator.backward(again(x).sum());
    optimizer.step();
  }
  {
    const auto guard = accelerator.accumulate(model);
    accelerator.backward(model(x).sum());
    CHECK(accelerator.sync_gradients());
    optimizer.step();
  }
  CHECK(optimizer.steps() == 1);
  CHECK(net.layer->bias.grad().item<double>() == doctest::Approx(2.0));
}

TEST_CASE("handles: gradients are exchanged after a further handle of the model is destroyed") {
  debug_launcher(
      [] {
        Accelerator accelerator({.cpu = true});
        Line net;
        auto [model] = accelerator.prepare(net);
        accelerator.prepare(net);
        const auto rank = static_cast<double>(accelerator.group().rank());
        accelerator.backward(model(at::full({1, 3}, rank)).sum());
        require_close({net.layer->weight.grad()}, {at::full({1, 3}, 0.5)}, "the mean gradient");
      },
      2);
}

TEST_CASE("handles: all handles of an optimizer count the same steps") {
  Line net;
  SGD sgd(net.parameters(), SGDOptions(0.1));
  Accelerator accelerator({.cpu = true, .step_in_backward = true});
  auto [model, first, second] = accelerator.prepare(net, sgd, sgd);
  accelerator.backward(model(at::ones({2, 3})).sum());
  first.step();
  CHECK(first.steps() == 1);
  CHECK(second.steps() == 1);
  CHECK(first.norm_in_backward().value() > 0);
  CHECK(second.norm_in_backward().value() == first.norm_in_backward().value());
  CHECK(&second.unwrap() == &first.unwrap());
  first.reset();
  CHECK(second.steps() == 1);
}

TEST_CASE("handles: the scaled gradients of an optimizer with two handles are divided once") {
  Line net;
  SGD sgd(net.parameters(), SGDOptions(0.1));
  Accelerator accelerator(
      {.mixed_precision = Precision::fp16, .grad_scaler = {.init_scale = 8}, .cpu = true});
  auto [model, first, second] = accelerator.prepare(net, sgd, sgd);
  accelerator.backward(model(at::ones({2, 3})).to(at::kFloat).sum());
  CHECK(net.layer->bias.grad().item<double>() == doctest::Approx(16.0));
  accelerator.unscale_gradients();
  CHECK(net.layer->bias.grad().item<double>() == doctest::Approx(2.0));
}

TEST_CASE("handles: all handles of a scheduler follow the same optimizer") {
  Line net;
  SGD sgd(net.parameters(), SGDOptions(1.0));
  Accelerator accelerator({.cpu = true});
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  PreparedScheduler first = get_scheduler("linear", optimizer, 0, 10);
  PreparedScheduler second = std::get<0>(accelerator.prepare(first.unwrap()));
  accelerator.backward(model(at::ones({2, 3})).sum());
  optimizer.step();
  first.step();
  second.step();  // does nothing, because the optimizer has made one step
  CHECK(rate_of(optimizer) == doctest::Approx(0.9));
}

TEST_CASE("handles: an object whose handles are gone is prepared like a new one") {
  Line net;
  SGD sgd(net.parameters(), SGDOptions(1.0));
  Accelerator accelerator({.cpu = true});
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  PreparedScheduler scheduler = get_scheduler("linear", optimizer, 0, 10);
  optimizer.step();
  CHECK(optimizer.steps() == 1);
  accelerator.free_memory(model, optimizer);
  auto [model_again, optimizer_again] = accelerator.prepare(net, sgd);
  CHECK(optimizer_again.steps() == 0);
  accelerator.backward(model_again(at::ones({2, 3})).sum());
  optimizer_again.step();
  CHECK(optimizer_again.steps() == 1);
}

TEST_CASE("handles: a checkpoint contains each object once, whatever the number of handles") {
  const TemporaryDirectory folder;
  Line net;
  SGD sgd(net.parameters(), SGDOptions(1.0));
  torch::optim::StepLR decay(sgd, 1);
  auto rows = rows_of_hasten(4);
  {
    Accelerator accelerator({.cpu = true});
    const auto handles = accelerator.prepare(net, sgd, decay, rows);
    const auto more_handles = accelerator.prepare(net, sgd, decay, rows);
    accelerator.save_state(folder.path() / "state");
  }
  Accelerator accelerator({.cpu = true});
  const auto handles = accelerator.prepare(net, sgd, decay, rows);
  CHECK(accelerator.load_state(folder.path() / "state"));
}

TEST_CASE("handles: a loader of hasten with two handles is divided among the processes once") {
  debug_launcher(
      [] {
        Accelerator accelerator({.cpu = true});
        auto rows = rows_of_hasten(8);
        auto [first, second] = accelerator.prepare(rows, rows);
        std::int64_t count = 0;
        for (const auto& batch : second) count += batch.at("x").size(0);
        require(count == 4, "a process does not read half of the rows");
      },
      2);
}

TEST_CASE("handles: loops over two handles of a container may be nested") {
  Accelerator accelerator({.cpu = true});
  auto batches = three_batches();
  auto [outer, inner] = accelerator.prepare(batches, batches);
  int pairs = 0;
  for (const auto& a : outer) {
    for (const auto& b : inner) pairs += a.size(0) == b.size(0) ? 1 : 0;
  }
  CHECK(pairs == 9);
}

}  // namespace prepare_prepared_test
