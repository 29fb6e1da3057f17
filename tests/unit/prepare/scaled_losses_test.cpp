// Losses that are scaled for float16: skipped steps, windows, several optimizers, checkpoints, and
// several processes.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/data/column_dataset.h"
#include "hasten/data/loader.h"
#include "hasten/optim/adamw.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/code_of.h"
#include "unit/prepare/distributed_fixtures.h"
#include "unit/scoped_environment.h"

namespace prepare_scaled_losses_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using namespace hasten::distributed_fixtures;
namespace fs = std::filesystem;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

AcceleratorOptions fp16(double init_scale = 1024, std::int64_t steps = 1) {
  return {.mixed_precision = Precision::fp16,
          .grad_scaler = {.init_scale = init_scale, .growth_interval = 3},
          .gradient_accumulation_steps = steps,
          .cpu = true};
}

torch::optim::SGDOptions rate(double lr) { return torch::optim::SGDOptions(lr); }

at::Tensor scaled_by(const at::Tensor& loss, double factor) { return loss.to(at::kFloat) * factor; }

// Trains for 10 steps, some of which overflow in rank `bad_rank`, and returns the weights.
std::vector<at::Tensor> train_with_overflows(Accelerator& accelerator, std::int64_t bad_rank,
                                             std::vector<bool>* skipped = nullptr) {
  const std::int64_t rank = accelerator.group().rank();
  Sequential net = small_model();
  torch::optim::SGD sgd(net->parameters(), rate(0.1).momentum(0.9));
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  for (int step = 0; step < 10; ++step) {
    torch::manual_seed(100 * rank + step);
    const bool overflows = rank == bad_rank && (step == 2 || step == 7);
    const at::Tensor loss = loss_of(model(torch::randn({4, 6})));
    accelerator.backward(scaled_by(loss, overflows ? kInfinity : 1));
    (void)accelerator.clip_grad_norm_(net->parameters(), 1.0);
    optimizer.step();
    optimizer.zero_grad();
    if (skipped != nullptr) skipped->push_back(optimizer.step_was_skipped());
  }
  return copies(net->parameters());
}

}  // namespace

TEST_CASE("scaled losses: a step that overflows is skipped, and schedulers wait") {
  Accelerator accelerator(fp16());
  Sequential net = small_model();
  AdamW adamw(net->parameters(), AdamWOptions(0.1));
  torch::optim::StepLR of_optimizer(adamw, 1, 0.5);
  auto [model, optimizer, scheduler] = accelerator.prepare(net, adamw, of_optimizer);
  const auto step = [&](double factor) {
    accelerator.backward(scaled_by(loss_of(model(torch::ones({2, 6}))), factor));
    optimizer.step();
    scheduler.step();
    optimizer.zero_grad();
    return optimizer.step_was_skipped();
  };
  CHECK_FALSE(step(1));
  const auto before = copies(net->parameters());
  CHECK(step(kInfinity));
  CHECK(accelerator.optimizer_step_was_skipped());
  for (std::size_t i = 0; i < before.size(); ++i) CHECK(at::equal(before[i], net->parameters()[i]));
  CHECK(optimizer.steps() == 1);
  // The first step of LibTorch's StepLR keeps the rate, and the second one halves it.
  CHECK(adamw.param_groups()[0].options().get_lr() == 0.1);
  CHECK_FALSE(step(1));
  CHECK(adamw.param_groups()[0].options().get_lr() == 0.05);
}

TEST_CASE("scaled losses: gradients are divided once, before they are clipped") {
  Accelerator accelerator(fp16());
  Sequential net = small_model();
  torch::optim::SGD sgd(net->parameters(), rate(1.0));
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  const at::Tensor x = torch::ones({2, 6});
  loss_of(net->forward(x)).backward();
  const double plain = gradient_norm(net->parameters());
  net->zero_grad();
  accelerator.backward(loss_of(model(x)));
  CHECK(gradient_norm(net->parameters()) == doctest::Approx(1024 * plain).epsilon(0.01));
  accelerator.unscale_gradients();
  accelerator.unscale_gradients();
  CHECK(double(accelerator.clip_grad_norm_(net->parameters(), 1e9)) ==
        doctest::Approx(plain).epsilon(0.01));
  const at::Tensor expected = net->parameters()[0] - net->parameters()[0].grad();
  optimizer.step();
  CHECK(at::equal(net->parameters()[0], expected));
}

TEST_CASE("scaled losses: unstepped parameters are divided, checked and cleared with the others") {
  Accelerator accelerator(fp16());
  Sequential net = small_model();
  const std::vector<at::Tensor> stepped = {net->parameters()[0]};
  torch::optim::SGD sgd(stepped, rate(1.0));
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  optimizer.set_unstepped_parameters(net->parameters());
  const at::Tensor x = torch::ones({2, 6});
  loss_of(net->forward(x)).backward();
  const double plain = gradient_norm(net->parameters());
  net->zero_grad();
  accelerator.backward(loss_of(model(x)));
  CHECK(double(accelerator.clip_grad_norm_(net->parameters(), 1e9)) ==
        doctest::Approx(plain).epsilon(0.01));
  optimizer.step();
  CHECK_FALSE(optimizer.step_was_skipped());
  optimizer.zero_grad();
  for (const at::Tensor& each : net->parameters()) CHECK_FALSE(each.grad().defined());
  // A gradient that overflows makes the norm infinite, so the step is skipped.
  accelerator.backward(loss_of(model(x)));
  net->parameters()[1].mutable_grad().fill_(kInfinity);
  optimizer.step();
  CHECK(optimizer.step_was_skipped());
}

TEST_CASE("scaled losses: gradients that are added after others were divided are divided too") {
  const at::Tensor x = torch::ones({2, 6});
  // Returns the weights after a step of SGD without an Accelerator.
  const auto expected = [&](Sequential net) {
    torch::optim::SGD sgd(net->parameters(), rate(1.0));
    loss_of(net->forward(x)).backward();
    sgd.step();
    return net->parameters()[0].detach();
  };
  const auto close = [](const at::Tensor& a, const at::Tensor& b) {
    return at::allclose(a, b, 1e-2, 1e-3);
  };
  {
    Accelerator accelerator(fp16());
    Sequential one = small_model(), other = small_model();
    auto [first, of_first] =
        accelerator.prepare(one, std::make_shared<torch::optim::SGD>(one->parameters(), rate(1.0)));
    auto [second, of_second] = accelerator.prepare(
        other, std::make_shared<torch::optim::SGD>(other->parameters(), rate(1.0)));
    accelerator.backward(loss_of(first(x)));
    // This divides the gradients of both optimizers; the second one has none yet.
    accelerator.unscale_gradients();
    accelerator.backward(loss_of(second(x)));
    of_first.step();
    of_second.step();
    CHECK(close(one->parameters()[0], expected(small_model())));
    CHECK(close(other->parameters()[0], expected(small_model())));
  }
  for (const bool by_handle : {true, false}) {
    CAPTURE(by_handle);
    Accelerator accelerator(fp16());
    Sequential net = small_model();
    auto [model, optimizer] =
        accelerator.prepare(net, std::make_shared<torch::optim::SGD>(net->parameters(), rate(1.0)));
    accelerator.backward(loss_of(model(x)));
    (void)accelerator.clip_grad_norm_(net->parameters(), 1e9);
    // The gradients are cleared without a step.
    by_handle ? optimizer.zero_grad() : net->zero_grad();
    accelerator.backward(loss_of(model(x)));
    optimizer.step();
    CHECK(close(net->parameters()[0], expected(small_model())));
  }
}

TEST_CASE("scaled losses: a backward pass may not add to gradients that are divided already") {
  Accelerator accelerator(fp16());
  Sequential net = small_model();
  torch::optim::SGD sgd(net->parameters(), rate(1.0));
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  const auto backward = [&] { accelerator.backward(loss_of(model(torch::ones({2, 6})))); };
  backward();
  backward();
  (void)accelerator.clip_grad_norm_(net->parameters(), 1.0);
  CHECK(code_of(backward) == "prepare.scaled-losses");
  optimizer.step();
  optimizer.zero_grad();
  backward();
}

TEST_CASE("scaled losses: a window of items is their mean, as in float") {
  const auto train = [](Precision precision) {
    AcceleratorOptions options = fp16(1024, 3);
    options.mixed_precision = precision;
    Accelerator accelerator(options);
    Sequential net = small_model();
    torch::optim::SGD sgd(net->parameters(), rate(0.5));
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    for (int batch = 0; batch < 6; ++batch) {
      torch::manual_seed(batch);
      const auto guard = accelerator.accumulate(model);
      // With this number of items, a weighted loss would overflow float16.
      accelerator.backward(loss_of(model(torch::randn({4, 6}))).to(at::kFloat), 1e5 * (1 + batch));
      optimizer.step();
      optimizer.zero_grad();
      CHECK_FALSE(optimizer.step_was_skipped());
    }
    return copies(net->parameters());
  };
  require_close(train(Precision::fp16), train(Precision::no), "fp16 and float", 5e-3);
}

TEST_CASE("scaled losses: a changed scale reaches the gradients of other optimizers") {
  Accelerator accelerator(fp16());
  Sequential net = small_model();
  const auto all = net->parameters();
  const std::vector<at::Tensor> front(all.begin(), all.begin() + 2),
      back(all.begin() + 2, all.end());
  torch::optim::SGD first(front, rate(1.0)), second(back, rate(1.0));
  auto [model, one, other] = accelerator.prepare(net, first, second);
  accelerator.backward(loss_of(model(torch::ones({2, 6}))));
  const auto expected = copies({back[0] - back[0].grad() / 1024});
  front[0].mutable_grad().fill_(kInfinity);
  one.step();
  CHECK(one.step_was_skipped());
  other.step();
  CHECK_FALSE(other.step_was_skipped());
  CHECK(at::equal(back[0], expected[0]));
}

TEST_CASE("scaled losses: a run that overflows at every scale ends with the reason") {
  Accelerator accelerator(fp16());
  Sequential net = small_model();
  torch::optim::SGD sgd(net->parameters(), rate(1.0));
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  const auto before = copies(net->parameters());
  const auto code = code_of([&] {
    for (int step = 0; step < 100; ++step) {
      accelerator.backward(scaled_by(loss_of(model(torch::ones({2, 6}))), kInfinity));
      optimizer.step();
      optimizer.zero_grad();
    }
  });
  CHECK(code == "optim.loss-scale");
  CHECK(at::equal(before[0], net->parameters()[0]));
}

TEST_CASE("scaled losses: an unsupported call throws an error that names it") {
  Accelerator accelerator(fp16());
  Sequential net = small_model();
  torch::optim::LBFGS lbfgs(net->parameters());
  auto [model, optimizer] = accelerator.prepare(net, lbfgs);
  CHECK(code_of([&] {
          optimizer.step([&] { return loss_of(model(torch::ones({2, 6}))); });
        }) == "prepare.scaled-losses");
  CHECK(code_of([&] { accelerator.mark_gradients_used(); }) == "prepare.scaled-losses");
  AcceleratorOptions options = fp16();
  options.ddp.comm_hook = CommunicationHook::power_sgd;
  CHECK(code_of([&] { Accelerator other(options); }) == "prepare.precision");
  options = fp16();
  options.grad_scaler.backoff_factor = 2;
  CHECK(code_of([&] { Accelerator other(options); }) == "optim.grad-scaler-option");
}

TEST_CASE("scaled losses: losses are scaled if the launcher sets fp16") {
  const ScopedVariable variable("ACCELERATE_MIXED_PRECISION", "fp16");
  Accelerator accelerator({.cpu = true});
  CHECK(accelerator.mixed_precision() == Precision::fp16);
}

TEST_CASE("scaled losses: a loop that stops and continues, also in a window, gives the same bits") {
  const auto train = [](const fs::path& project, int stop) -> std::vector<at::Tensor> {
    AcceleratorOptions options = fp16(1 << 13, 2);
    options.project_config = {.project_dir = project, .automatic_checkpoint_naming = true};
    Accelerator accelerator(options);
    Sequential net = small_model();
    AdamW adamw(net->parameters(), AdamWOptions(0.05));
    torch::manual_seed(3);
    const at::Tensor x = torch::randn({48, 6});
    auto raw = make_loader(ColumnDataset({{"x", x}}), {.batch_size = 2});
    auto [model, optimizer, loader] = accelerator.prepare(net, adamw, raw);
    const bool resumes = accelerator.load_state();
    int batches = resumes ? stop : 0;
    if (resumes) stop = -1;
    for (auto& batch : loader) {
      const auto guard = accelerator.accumulate(model);
      accelerator.backward(scaled_by(loss_of(model(batch.at("x"))), 100));
      optimizer.step();
      optimizer.zero_grad();
      if (++batches != stop) continue;
      accelerator.save_state();
      return {};
    }
    CHECK(batches == 24);
    return copies(net->parameters());
  };
  const TemporaryDirectory none;
  const auto straight = train(none.path(), -1);
  for (const int stop : {2, 5, 6, 11}) {
    CAPTURE(stop);
    const TemporaryDirectory project;
    CHECK(train(project.path(), stop).empty());
    const auto resumed = train(project.path(), stop);
    REQUIRE(resumed.size() == straight.size());
    for (std::size_t i = 0; i < straight.size(); ++i) CHECK(at::equal(straight[i], resumed[i]));
  }
}

TEST_CASE("scaled losses: all processes skip a step if one of them overflows") {
  for (const bool local : {false, true}) {
    debug_launcher(
        [local] {
          Accelerator accelerator(fp16());
          std::vector<bool> skipped;
          if (local) {
            // In local steps, processes exchange only whether one of them overflowed.
            Sequential net = small_model();
            torch::optim::SGD sgd(net->parameters(), rate(0.1));
            auto [model, optimizer] = accelerator.prepare(net, sgd);
            LocalSGD local_sgd(accelerator, model, {.local_sgd_steps = 4});
            for (int step = 0; step < 10; ++step) {
              const bool overflows = accelerator.group().rank() == 1 && (step == 2 || step == 7);
              accelerator.backward(
                  scaled_by(loss_of(model(torch::ones({2, 6}))), overflows ? kInfinity : 1));
              optimizer.step();
              optimizer.zero_grad();
              local_sgd.step();
              skipped.push_back(optimizer.step_was_skipped());
            }
          } else {
            const auto weights = train_with_overflows(accelerator, /*bad_rank=*/1, &skipped);
            for (const at::Tensor& each : weights)
              require(at::equal(each, accelerator.group().broadcast(each)), "weights differ");
          }
          for (std::size_t step = 0; step < skipped.size(); ++step)
            require(skipped[step] == (step == 2 || step == 7), "another step was skipped");
        },
        2);
  }
}

TEST_CASE("scaled losses: a process that ran out of data continues with the scale of the others") {
  debug_launcher(
      [] {
        Accelerator accelerator(fp16());
        Sequential net = small_model();
        torch::optim::SGD sgd(net->parameters(), rate(0.1));
        auto [model, optimizer] = accelerator.prepare(net, sgd);
        const std::int64_t rank = accelerator.group().rank();
        {
          const auto guard = accelerator.join_uneven_inputs(model);
          for (int step = 0; step < (rank == 0 ? 2 : 6); ++step) {
            accelerator.backward(
                scaled_by(loss_of(model(torch::ones({2, 6}))), step == 4 ? kInfinity : 1));
            optimizer.step();
            optimizer.zero_grad();
          }
        }
        require(optimizer.steps() == 5, "the steps that were made");
        accelerator.backward(loss_of(model(3 * torch::randn({4, 6}))));
        const at::Tensor scaled = net->parameters()[0].grad().clone();
        accelerator.unscale_gradients();
        const double scale =
            (scaled.abs().sum() / net->parameters()[0].grad().abs().sum()).item<double>();
        // Three steps double the scale, and the overflow halves it.
        require(scale == 1024, str("the scale after the scope: ", scale));
        optimizer.step();
        require(!optimizer.step_was_skipped(), "the step after the scope");
      },
      2);
}

TEST_CASE("scaled losses: virtual ranks give the same bits in one and in two processes") {
  const auto train = [](const fs::path& file) {
    AcceleratorOptions options = fp16(1 << 12);
    options.elastic_ranks = 2;
    Accelerator accelerator(options);
    Sequential net = small_model();
    AdamW adamw(net->parameters(), AdamWOptions(0.05));
    torch::manual_seed(3);
    const at::Tensor x = torch::randn({32, 6});
    auto raw = make_loader(ColumnDataset({{"x", x}}), {.batch_size = 2});
    auto [model, optimizer, loader] = accelerator.prepare(net, adamw, raw);
    std::int64_t skipped = 0;
    for (auto& batch : loader) {
      const auto guard = accelerator.accumulate(model);
      accelerator.backward(scaled_by(loss_of(model(batch.at("x"))), 100));
      optimizer.step();
      optimizer.zero_grad();
      skipped += accelerator.sync_gradients() && optimizer.step_was_skipped();
    }
    require(skipped > 0 && optimizer.steps() > 0, "some steps are skipped and others made");
    accelerator.save_model(model, file);
  };
  const TemporaryDirectory folder;
  debug_launcher([&] { train(folder.path() / "1.safetensors"); }, 1);
  debug_launcher([&] { train(folder.path() / "2.safetensors"); }, 2);
  CHECK(read_file(folder.path() / "1.safetensors") == read_file(folder.path() / "2.safetensors"));
}

}  // namespace prepare_scaled_losses_test
