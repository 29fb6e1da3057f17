// Open accumulation windows as values: a trainer that is written with public headers alone stops
// inside a window and continues bit for bit, and values that do not fit are refused.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/detail/training_state.h"
#include "hasten/data/column_dataset.h"
#include "hasten/data/loader.h"
#include "hasten/formats/module_weights.h"
#include "hasten/formats/safetensors.h"
#include "hasten/optim/adamw.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/code_of.h"
#include "unit/prepare/multiprocess_checks.h"

namespace prepare_open_window_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kRows = 46, kWidth = 5, kWindow = 4, kSteps = 7;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    torch::manual_seed(3);
    first = register_module("first", torch::nn::Linear(kWidth, 8));
    second = register_module("second", torch::nn::Linear(8, 1));
  }
  at::Tensor forward(const at::Tensor& x) {
    return second(torch::dropout(first(x).relu(), 0.2, is_training()));
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(Net);

ColumnDataset own_rows() {
  torch::manual_seed(4);
  const at::Tensor x = at::randn({kRows, kWidth});
  return ColumnDataset({{"x", x}, {"y", x.sum(1, true).cos()}});
}

// A trainer with its own checkpoints, which can stop after any micro-batch.
class SmallTrainer {
 public:
  explicit SmallTrainer(Precision precision = Precision::no, GradScalerKwargs scaler = {})
      : accelerator_({.mixed_precision = precision,
                      .grad_scaler = scaler,
                      .gradient_accumulation_steps = kWindow,
                      .cpu = true}),
        adamw_(net_->parameters(), torch::optim::AdamWOptions(1e-2)),
        model_(std::get<0>(accelerator_.prepare(net_))),
        optimizer_(std::get<0>(accelerator_.prepare(adamw_))),
        loader_(std::get<0>(accelerator_.prepare(
            make_loader(own_rows(), {.batch_size = 3, .shuffle = true, .seed = 5})))) {
    torch::manual_seed(6 + rank());
  }

  // Trains until the run has had `last` micro-batches, or to its end.
  void train(std::int64_t last = std::numeric_limits<std::int64_t>::max()) {
    while (steps_ < kSteps) {
      for (TensorDict& batch : loader_) {
        const auto guard = accelerator_.accumulate(model_);
        const at::Tensor out = model_(batch.at("x")).to(at::kFloat);
        accelerator_.backward(torch::mse_loss(out, batch.at("y")),
                              static_cast<double>(batch.at("x").size(0)));
        optimizer_.step();
        optimizer_.zero_grad();
        if (accelerator_.sync_gradients()) ++steps_;
        if (++micro_batches_ == last) return;
        if (steps_ == kSteps) return;
      }
    }
  }

  void save(const fs::path& folder) {
    const auto random = random_states(accelerator_.group());
    save_safetensors(folder / str("windows", rank(), ".safetensors"),
                     accelerator_.open_windows().state_dict());
    if (!accelerator_.is_main_process()) return;
    save_weights(*net_, folder);
    save_training_state(folder, adamw_, names(),
                        {.scheduler_step = steps_,
                         .num_processes = accelerator_.process().num_processes,
                         .loader = loader_->state(),
                         .loss_scale = accelerator_.loss_scale()},
                        random);
  }

  void resume(const fs::path& folder) {
    load_weights(*net_, folder);
    load_training_state(folder, adamw_, names(), rank());
    const TrainingPosition position = load_training_position(folder);
    steps_ = position.scheduler_step;
    loader_->load_state(position.loader);
    accelerator_.restore_loss_scale(position.loss_scale);
    OpenWindows windows;
    windows.load_state_dict(load_safetensors(folder / str("windows", rank(), ".safetensors")));
    accelerator_.restore_windows(windows, folder);
  }

  std::int64_t rank() const { return accelerator_.process().process_index; }
  Accelerator& accelerator() { return accelerator_; }
  TensorDict weights() const {
    TensorDict all;
    for (const auto& item : net_->named_parameters()) all[item.key()] = item.value().clone();
    return all;
  }

 private:
  ParameterNames names() const {
    ParameterNames all;
    for (const auto& item : net_->named_parameters()) all[item.key()] = item.value();
    return all;
  }

  Accelerator accelerator_;
  Net net_;
  AdamW adamw_;
  PreparedModel<NetImpl> model_;
  PreparedOptimizer optimizer_;
  PreparedLoader<Loader<TensorDict>> loader_;
  std::int64_t steps_ = 0, micro_batches_ = 0;
};

bool same_bits(const TensorDict& a, const TensorDict& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, tensor] : a) {
    if (!at::equal(tensor, b.at(name))) return false;
  }
  return true;
}

// Returns the weights of a run that stops after `stop` micro-batches and is continued by another
// trainer.
TensorDict continued(std::int64_t stop, const fs::path& folder,
                     Precision precision = Precision::no) {
  {
    SmallTrainer trainer(precision);
    trainer.train(stop);
    trainer.save(folder);
    trainer.accelerator().wait_for_everyone();
  }
  SmallTrainer trainer(precision);
  trainer.resume(folder);
  trainer.train();
  return trainer.weights();
}

OpenWindow only_window(Accelerator& accelerator) {
  const OpenWindows open = accelerator.open_windows();
  REQUIRE(open.windows.size() == 1);
  return open.windows.front();
}

}  // namespace

TEST_CASE("open windows: a trainer on the public API stops in a window and continues bit for bit") {
  SmallTrainer whole;
  whole.train();
  // An epoch has 16 micro-batches, and the last one has one row.
  for (const std::int64_t stop : {1, 2, 3, 4, 6, 15, 16, 17, 23}) {
    CAPTURE(stop);
    const TemporaryDirectory folder;
    CHECK(same_bits(continued(stop, folder.path()), whole.weights()));
  }
}

TEST_CASE("open windows: the gradients of scaled losses continue bit for bit") {
  SmallTrainer whole(Precision::fp16);
  whole.train();
  for (const std::int64_t stop : {2, 7}) {
    CAPTURE(stop);
    const TemporaryDirectory folder;
    CHECK(same_bits(continued(stop, folder.path(), Precision::fp16), whole.weights()));
  }
}

TEST_CASE("open windows: two processes continue bit for bit, each with its own window") {
  const TemporaryDirectory folder;
  debug_launcher([&] {
    SmallTrainer whole;
    whole.train();
    for (const std::int64_t stop : {1, 3, 5, 8}) {
      const fs::path own = folder.path() / str("stop", stop);
      if (whole.rank() == 0) fs::create_directory(own);
      whole.accelerator().wait_for_everyone();
      require(same_bits(continued(stop, own), whole.weights()), str("after ", stop));
    }
  });
}

TEST_CASE("open windows: the position is that of the latest micro-batch") {
  Accelerator accelerator({.gradient_accumulation_steps = 3, .cpu = true});
  Net net;
  AdamW adamw(net->parameters());
  auto raw = make_loader(own_rows(), {.batch_size = 4});
  auto [model, optimizer, loader] = accelerator.prepare(net, adamw, raw);
  CHECK(accelerator.open_windows().empty());
  std::int64_t batches = 0;
  for (TensorDict& batch : loader) {
    const auto guard = accelerator.accumulate(model);
    const std::int64_t begun = batches % 3 + 1;
    OpenWindow expected{.models = {0},
                        .micro_batches = begun,
                        .capacity = 3,
                        .backward_passes = begun - 1,
                        .rows = 4 * begun,
                        .weight = 4.0 * static_cast<double>(begun - 1),
                        .awaits_step = begun == 3};
    CHECK(only_window(accelerator) == expected);
    accelerator.backward(model(batch.at("x")).mean(), 4);
    expected.backward_passes = begun;
    expected.weight += 4;
    CHECK(only_window(accelerator) == expected);
    optimizer.step();
    optimizer.zero_grad();
    CHECK(accelerator.open_windows().empty() == (begun == 3));
    CHECK(accelerator.open_windows().gradients.empty() == (begun == 3));
    if (++batches == 5) break;
  }
  accelerator.free_memory();
  CHECK(accelerator.open_windows().empty());
}

TEST_CASE("open windows: a window that waits for its step is neither saved nor restored") {
  Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
  Net net;
  AdamW adamw(net->parameters());
  auto [model, optimizer] = accelerator.prepare(net, adamw);
  const auto pass = [&](auto& prepared) {
    const auto guard = accelerator.accumulate(prepared);
    accelerator.backward(prepared(at::ones({4, kWidth})).mean());
  };
  pass(model);
  pass(model);  // closes the window
  const OpenWindows open = accelerator.open_windows();
  CHECK(open.windows.front().awaits_step);
  CHECK(code_of([&] { open.state_dict(); }) == "checkpoint.open-window");
  CHECK(code_of([&] { accelerator.restore_windows(open); }) == "checkpoint.window");
  const TemporaryDirectory folder;
  CHECK(code_of([&] { accelerator.save_state(folder.path() / "state"); }) ==
        "checkpoint.open-window");
  CHECK_FALSE(fs::exists(folder.path() / "state"));
  SUBCASE("until its step") { optimizer.step(); }
  SUBCASE("until its gradients are dropped") { optimizer.zero_grad(); }
  SUBCASE("until the step of an optimizer that is not prepared") {
    accelerator.mark_gradients_used();
  }
  CHECK(accelerator.open_windows().empty());
  accelerator.save_state(folder.path() / "state");
}

TEST_CASE("open windows: values that do not fit are refused before anything changes") {
  Accelerator accelerator({.gradient_accumulation_steps = 3, .cpu = true});
  Net net;
  auto [model] = accelerator.prepare(net);
  {
    const auto guard = accelerator.accumulate(model);
    accelerator.backward(model(at::ones({4, kWidth})).mean());
  }
  const OpenWindows good = accelerator.open_windows();
  const at::Tensor before = net->second->weight.grad().clone();
  const auto code_with = [&](const auto& change) {
    OpenWindows other = good;
    change(other);
    return code_of([&] { accelerator.restore_windows(other); });
  };
  using Windows = OpenWindows;
  CHECK(code_with([](Windows& w) { w.windows[0].models = {1}; }) == "checkpoint.window");
  CHECK(code_with([](Windows& w) { w.windows[0].models = {-1}; }) == "checkpoint.window");
  CHECK(code_with([](Windows& w) { w.windows[0].models = {}; }) == "checkpoint.window");
  CHECK(code_with([](Windows& w) { w.windows[0].micro_batches = 0; }) == "checkpoint.window");
  CHECK(code_with([](Windows& w) { w.windows[0].micro_batches = 3; }) == "checkpoint.window");
  CHECK(code_with([](Windows& w) { w.windows[0].backward_passes = 2; }) == "checkpoint.window");
  CHECK(code_with([](Windows& w) { w.windows[0].rows = -1; }) == "checkpoint.window");
  CHECK(code_with([](Windows& w) { w.windows[0].weight = std::nan(""); }) == "checkpoint.window");
  CHECK(code_with([](Windows& w) { w.loss_scale = 0; }) == "checkpoint.window");
  CHECK(code_with([](Windows& w) { w.gradients["third"] = at::ones({1}); }) ==
        "checkpoint.gradients");
  CHECK(at::equal(before, net->second->weight.grad()));
  CHECK((accelerator.open_windows().windows == good.windows));
  CHECK(code_with([](Windows&) {}) == "none");
  CHECK((accelerator.open_windows().windows == good.windows));

  TensorDict state = good.state_dict();
  OpenWindows read;
  read.load_state_dict(state);
  CHECK((read.windows == good.windows));
  CHECK(read.loss_scale == 1);
  CHECK(same_bits(read.gradients, good.gradients));
  const auto code_of_state = [&](TensorDict other) {
    return code_of([&] { read.load_state_dict(other); });
  };
  CHECK(code_of_state({}) == "checkpoint.window");
  TensorDict more = state, bad = state, fewer = state;
  more["window.7"] = at::ones({5}, at::kDouble);
  CHECK(code_of_state(more) == "checkpoint.window");
  bad["window.0"] = at::ones({4}, at::kDouble);
  CHECK(code_of_state(bad) == "checkpoint.window");
  for (const double number : {1e300, -1.0, 0.5, std::nan("")}) {
    bad["window.0"] = at::full({5}, number, at::kDouble);
    CHECK(code_of_state(bad) == "checkpoint.window");
  }
  fewer.erase("window.0.models");
  CHECK(code_of_state(fewer) == "checkpoint.window");
  CHECK((read.windows == good.windows));
}

TEST_CASE("open windows: elastic ranks have none to read") {
  Accelerator accelerator({.cpu = true, .elastic_ranks = 2});
  CHECK(code_of([&] { accelerator.open_windows(); }) == "prepare.elastic-loop");
  CHECK(code_of([&] { accelerator.restore_windows({}); }) == "prepare.elastic-loop");
  CHECK(code_of([&] { accelerator.register_exchange_pre_hook([] {}); }) == "prepare.elastic-loop");
  CHECK(accelerator.elastic_sum({1.5, 2}) == 3.5);
  CHECK(code_of([&] { accelerator.elastic_sum({1.5}); }) == "prepare.elastic-loop");
  const auto position = accelerator.elastic_position();
  REQUIRE(position);
  CHECK(position->ranks == 2);
  Accelerator plain({.cpu = true});
  CHECK(!plain.elastic_position());
  CHECK(code_of([&] { plain.elastic_sum({1}); }) == "prepare.elastic-loop");
  CHECK(code_of([&] { plain.restore_elastic_position(position, "a"); }) == "checkpoint.elastic");
  CHECK(!plain.loss_scale());
}

TEST_CASE("exchange hook: all processes leave a window that one of them has failed in") {
  debug_launcher([] {
    Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
    Net net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    const std::int64_t rank = accelerator.process().process_index;
    bool failed = false;
    std::int64_t calls = 0;
    ExchangeHook hook = accelerator.register_exchange_pre_hook([&] {
      ++calls;
      const at::Tensor any = accelerator.reduce(at::full({1}, failed ? 1.0 : 0.0));
      if (any.item<double>() > 0) throw std::runtime_error("failed");
    });
    const auto pass = [&] {
      const auto guard = accelerator.accumulate(model);
      accelerator.backward(model(at::ones({2, kWidth}) * static_cast<double>(rank + 1)).mean());
    };
    const auto before = copies(net->parameters());
    pass();
    require(calls == 0, "a call inside the window");
    failed = rank == 1;
    bool thrown = false;
    try {
      pass();
    } catch (const std::runtime_error& error) {
      thrown = std::string(error.what()) == "failed";
    }
    require(thrown && calls == 1, "the other process goes on");
    require_close(copies(net->parameters()), before, "the weights", 0);
    accelerator.free_memory();
    optimizer.zero_grad();
    failed = false;
    pass();
    pass();
    require(calls == 2, "no call in the next window");
    const at::Tensor with_hook = net->second->bias.grad().clone();
    require(
        code_of([&] { auto scope = accelerator.join_uneven_inputs(model); }) == "prepare.join-call",
        "a hook inside join_uneven_inputs");
    hook.remove();
    optimizer.zero_grad();
    pass();
    pass();
    require(calls == 2, "a removed function is called");
    require_close({net->second->bias.grad()}, {with_hook}, "the gradient");
    std::vector<ExchangeHook> hooks;
    std::weak_ptr<int> captured;
    bool has_captures = false;
    {
      const auto value = std::make_shared<int>(1);
      captured = value;
      hooks.push_back(accelerator.register_exchange_pre_hook([&, value] {
        hooks[0].remove();
        has_captures = !captured.expired();
      }));
    }
    pass();
    pass();
    require(has_captures, "a function that removes itself has lost its captures");
  });
}

}  // namespace prepare_open_window_test
