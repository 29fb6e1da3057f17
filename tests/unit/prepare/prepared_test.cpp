// Handles that are empty, and objects that are prepared again while a handle of them exists.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/data/column_dataset.h"
#include "hasten/data/loader.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/code_of.h"
#include "unit/prepare/multiprocess_checks.h"

namespace prepare_prepared_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using torch::optim::SGD;
using torch::optim::SGDOptions;

namespace {

const std::string kEmptyHandle = "prepare.empty-handle";

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

TEST_CASE("handles: each call of an empty handle of a model throws") {
  Accelerator accelerator({.cpu = true});
  PreparedModel<Line> model = std::get<0>(accelerator.prepare(std::make_shared<Line>()));
  CHECK(static_cast<bool>(model));
  accelerator.free_memory(model);
  CHECK_FALSE(static_cast<bool>(model));
  const at::Tensor x = at::ones({2, 3});
  CHECK(code_of([&] { (void)model(x); }) == kEmptyHandle);
  CHECK(code_of([&] { (void)model.call([&](Line& line) { return line.forward(x); }); }) ==
        kEmptyHandle);
  CHECK(code_of([&] { model->train(); }) == kEmptyHandle);
  CHECK(code_of([&] { (*model).train(); }) == kEmptyHandle);
  CHECK(code_of([&] { (void)model.unwrap(); }) == kEmptyHandle);
}

TEST_CASE("handles: each call of an empty handle of an optimizer throws") {
  Line net;
  Accelerator accelerator({.cpu = true});
  PreparedOptimizer optimizer =
      std::get<0>(accelerator.prepare(std::make_shared<SGD>(net.parameters(), SGDOptions(0.1))));
  CHECK(static_cast<bool>(optimizer));
  accelerator.free_memory(optimizer);
  CHECK_FALSE(static_cast<bool>(optimizer));
  CHECK(code_of([&] { optimizer.step(); }) == kEmptyHandle);
  CHECK(code_of([&] { (void)optimizer.step([] { return at::zeros({}); }); }) == kEmptyHandle);
  CHECK(code_of([&] { optimizer.zero_grad(); }) == kEmptyHandle);
  CHECK(code_of([&] { (void)optimizer.steps(); }) == kEmptyHandle);
  CHECK(code_of([&] { (void)optimizer.step_was_skipped(); }) == kEmptyHandle);
  CHECK(code_of([&] { (void)optimizer.norm_in_backward(); }) == kEmptyHandle);
  CHECK(code_of([&] { (void)optimizer.unwrap(); }) == kEmptyHandle);
  CHECK(code_of([&] { (void)optimizer->param_groups(); }) == kEmptyHandle);
  CHECK(code_of([&] { (void)get_scheduler("linear", optimizer, 0, 4); }) == kEmptyHandle);
}

TEST_CASE("handles: each call of an empty handle of a scheduler throws") {
  Line net;
  SGD sgd(net.parameters(), SGDOptions(0.1));
  Accelerator accelerator({.cpu = true});
  PreparedOptimizer optimizer = std::get<0>(accelerator.prepare(sgd));
  PreparedScheduler scheduler = get_scheduler("linear", optimizer, 0, 4);
  CHECK(static_cast<bool>(scheduler));
  accelerator.free_memory(scheduler);
  CHECK_FALSE(static_cast<bool>(scheduler));
  CHECK(code_of([&] { scheduler.step(); }) == kEmptyHandle);
  CHECK(code_of([&] { (void)scheduler.unwrap(); }) == kEmptyHandle);
  CHECK(code_of([&] { scheduler->step(); }) == kEmptyHandle);
  torch::optim::StepLR decay(sgd, 1);
  accelerator.free_memory(optimizer);
  const auto shared =
      std::shared_ptr<torch::optim::LRScheduler>(&decay, [](torch::optim::LRScheduler*) {});
  CHECK(code_of([&] { PreparedScheduler(shared, optimizer); }) == kEmptyHandle);
}

TEST_CASE("handles: each call of an empty handle of a loader throws") {
  Accelerator accelerator({.cpu = true});
  PreparedLoader<Batches> foreign = std::get<0>(accelerator.prepare(three_batches()));
  auto own = std::get<0>(accelerator.prepare(rows_of_hasten(4)));
  CHECK(static_cast<bool>(foreign));
  accelerator.free_memory(foreign, own);
  CHECK_FALSE(static_cast<bool>(foreign));
  CHECK(code_of([&] { (void)foreign.begin(); }) == kEmptyHandle);
  CHECK(code_of([&] { (void)foreign.size(); }) == kEmptyHandle);
  CHECK(code_of([&] { (void)foreign.unwrap(); }) == kEmptyHandle);
  CHECK(code_of([&] { (void)foreign->size(); }) == kEmptyHandle);
  CHECK(code_of([&] { (void)own.begin(); }) == kEmptyHandle);
  CHECK(code_of([&] { (void)own.size(); }) == kEmptyHandle);
  CHECK(code_of([&] { (void)own.unwrap(); }) == kEmptyHandle);
  CHECK(code_of([&] { (void)own->size(); }) == kEmptyHandle);
}

TEST_CASE("handles: calls of the Accelerator that take an empty handle throw") {
  Line net;
  Accelerator accelerator({.cpu = true});
  PreparedModel<Line> model = std::get<0>(accelerator.prepare(net));
  PreparedOptimizer optimizer =
      std::get<0>(accelerator.prepare(std::make_shared<SGD>(net.parameters(), SGDOptions(0.1))));
  const auto loss = [](Line& line, const at::Tensor& x) { return line.forward(x).mean(); };
  accelerator.free_memory(optimizer);
  CHECK(code_of([&] { (void)accelerator.training_step(model, optimizer, loss); }) == kEmptyHandle);
  CHECK(code_of([&] { (void)accelerator.prepare(optimizer); }) == kEmptyHandle);
  accelerator.free_memory(model);
  const TemporaryDirectory folder;
  CHECK(code_of([&] { (void)accelerator.training_step(model, optimizer, loss); }) == kEmptyHandle);
  CHECK(code_of([&] { (void)accelerator.accumulate(model); }) == kEmptyHandle);
  CHECK(code_of([&] { (void)accelerator.no_sync(model); }) == kEmptyHandle);
  CHECK(code_of([&] { (void)accelerator.trigger_sync_in_backward(model); }) == kEmptyHandle);
  CHECK(code_of([&] { (void)accelerator.join_uneven_inputs(model); }) == kEmptyHandle);
  CHECK(code_of([&] { (void)LocalSGD(accelerator, model); }) == kEmptyHandle);
  CHECK(code_of([&] { accelerator.save_model(model, folder.path()); }) == kEmptyHandle);
  CHECK(code_of([&] { (void)accelerator.load_model(model, folder.path()); }) == kEmptyHandle);
  CHECK(code_of([&] { (void)accelerator.prepare(model); }) == kEmptyHandle);
  accelerator.free_memory(model, optimizer);  // does nothing
}

TEST_CASE("handles: the error of an empty handle says what to do") {
  Accelerator accelerator({.cpu = true});
  Line net;
  PreparedModel<Line> model = std::get<0>(accelerator.prepare(net));
  PreparedModel<Line> moved = std::move(model);
  CHECK(static_cast<bool>(moved));
  try {
    model->train();
    FAIL("a handle that was moved is not empty");
  } catch (const UsageError& error) {
    CHECK(error.text().what == "a call of a prepared model");
    CHECK(error.text().got.find("free_memory()") != std::string::npos);
    CHECK_FALSE(error.text().expected.empty());
    CHECK(error.hint().find("prepare()") != std::string::npos);
  }
}

TEST_CASE("handles: an empty handle can get a new one, and copies of it stay usable") {
  Accelerator accelerator({.cpu = true});
  Line net;
  PreparedModel<Line> model = std::get<0>(accelerator.prepare(net));
  PreparedModel<Line> copy = model;
  const at::Tensor x = at::ones({2, 3});
  accelerator.free_memory(model);
  CHECK(copy(x).size(0) == 2);
  model = std::get<0>(accelerator.prepare(net));
  CHECK(model(x).size(0) == 2);
}

TEST_CASE("handles: a loop over a loader goes on if its body empties the handle") {
  Accelerator accelerator({.cpu = true});
  PreparedLoader<Batches> foreign = std::get<0>(accelerator.prepare(three_batches()));
  auto own = std::get<0>(accelerator.prepare(rows_of_hasten(6)));
  int batches = 0;
  for (const auto& batch : foreign) {
    accelerator.free_memory(foreign);
    CHECK(batch.size(0) == 2);
    ++batches;
  }
  for (const auto& batch : own) {
    accelerator.free_memory(own);
    CHECK(batch.at("x").size(0) == 2);
    ++batches;
  }
  CHECK(batches == 6);
}

TEST_CASE("handles: an empty handle of a scheduler does not keep its optimizer alive") {
  Line net;
  auto sgd = std::make_shared<SGD>(net.parameters(), SGDOptions(0.1));
  Accelerator accelerator({.cpu = true});
  PreparedOptimizer optimizer = std::get<0>(accelerator.prepare(sgd));
  PreparedScheduler scheduler = get_scheduler("linear", optimizer, 0, 4);
  const std::weak_ptr<SGD> watch = sgd;
  sgd.reset();
  accelerator.free_memory(optimizer);
  scheduler.step();  // does nothing, because the optimizer has made no step
  CHECK_FALSE(watch.expired());
  accelerator.free_memory(scheduler);
  CHECK(watch.expired());
}

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
