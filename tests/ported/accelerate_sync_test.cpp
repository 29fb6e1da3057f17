// Accelerate's test_utils/scripts/test_sync.py (1.15), assert by assert. The comments name its
// functions.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "hasten/data/loader.h"
#include "hasten/optim/scheduler.h"
#include "hasten/process/notebook_launcher.h"
#include "ported/regression.h"

namespace ported_accelerate_sync_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using namespace hasten::ported;

namespace {

constexpr std::int64_t kWindow = 2;

auto loader_of(std::int64_t rows = 80) {
  return make_loader(regression_rows(rows), {.batch_size = 16});
}

std::vector<at::Tensor> gradients_of(const torch::nn::Module& model) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& each : model.parameters()) all.push_back(each.grad());
  return all;
}

bool in_sync(const torch::nn::Module& reference, const torch::nn::Module& net, double scale = 1) {
  const auto expected = gradients_of(reference), got = gradients_of(net);
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!at::allclose(got[i], expected[i] * scale)) return false;
  }
  return true;
}

void backward(RegressionModel& reference, const TensorDict& batch, double steps = 1) {
  (mse(reference.forward(batch.at("x")), batch.at("y")) / steps).backward();
}

// Puts the inputs in a different order, so that they no longer belong to their targets.
void shuffle(TensorDict& batch, std::int64_t seed) {
  torch::manual_seed(seed);
  at::Tensor& x = batch.at("x");
  x = x.index_select(0, torch::randperm(x.size(0)));
}

// Runs a backward pass, inside no_sync if it is local.
template <class Model>
void backward(Accelerator& accelerator, Model& model, const TensorDict& batch, bool is_local) {
  if (is_local) {
    const auto scope = accelerator.no_sync(model);
    return backward(accelerator, model, batch, false);
  }
  accelerator.backward(mse(model(batch.at("x")), batch.at("y")));
}

}  // namespace

TEST_CASE("sync: in one process no_sync changes nothing") {
  // test_noop_sync
  Accelerator accelerator({.cpu = true});
  RegressionModel reference;
  const auto net = std::make_shared<RegressionModel>();
  auto raw = loader_of();
  auto [model, loader] = accelerator.prepare(net, raw);
  TensorDict batch = *loader.begin();
  for (std::int64_t iteration = 0; iteration < 3; ++iteration) {
    CAPTURE(iteration);
    backward(reference, accelerator.gather(batch));
    backward(accelerator, model, batch, iteration % 2 == 0);
    CHECK(in_sync(reference, *net));
    shuffle(batch, 1337 + iteration);
  }
}

TEST_CASE("sync: gradients are exchanged outside no_sync only") {
  // test_distributed_sync
  debug_launcher([] {
    Accelerator accelerator;
    RegressionModel reference;
    const auto net = std::make_shared<RegressionModel>();
    auto raw = loader_of();
    auto [model, loader] = accelerator.prepare(net, raw);
    TensorDict batch = *loader.begin();
    for (std::int64_t iteration = 0; iteration < 3; ++iteration) {
      backward(reference, accelerator.gather(batch));
      const bool local = iteration % 2 == 0;
      backward(accelerator, model, batch, local);
      require(in_sync(reference, *net) == !local, str("gradients in iteration ", iteration));
      shuffle(batch, 1337 + iteration);
    }
  });
}

TEST_CASE("sync: only the backward pass with trigger_sync_in_backward exchanges gradients") {
  // test_distributed_sync_multiple_fwd
  debug_launcher([] {
    Accelerator accelerator;
    RegressionModel reference;
    const auto net = std::make_shared<RegressionModel>();
    auto raw = loader_of();
    auto [model, loader] = accelerator.prepare(net, raw);
    std::vector<at::Tensor> losses;
    for (int iteration = 0; iteration < 3; ++iteration) {
      const TensorDict batch = *loader.begin();
      backward(reference, accelerator.gather(batch));
      losses.push_back(mse(model(batch.at("x")), batch.at("y")));
    }
    const auto scope = accelerator.no_sync(model);
    for (int iteration = 0; iteration < 2; ++iteration) {
      accelerator.backward(losses[static_cast<std::size_t>(iteration)]);
      require(!in_sync(reference, *net), "gradients are exchanged too early");
    }
    const auto trigger = accelerator.trigger_sync_in_backward(model);
    accelerator.backward(losses[2]);
    require(in_sync(reference, *net), "gradients are not exchanged at the end");
  });
}

TEST_CASE("sync: a window's gradients are those of its whole batches in one process") {
  // test_gradient_accumulation. Accelerate divides by gradient_accumulation_steps even if the last
  // window has fewer micro-batches. hasten divides by the number of micro-batches in the window
  // (docs/design/003). It does so only when the window closes, so gradients that sync_each_batch
  // exchanges earlier are a sum.
  for (const bool split : {false, true}) {
    for (const bool dispatch : {false, true}) {
      for (const bool sync_each_batch : {false, true}) {
        debug_launcher([=] {
          Accelerator accelerator(
              {.gradient_accumulation_steps = kWindow,
               .dataloader_config = {.split_batches = split, .dispatch_batches = dispatch}});
          RegressionModel reference;
          const auto net = std::make_shared<RegressionModel>();
          auto raw = loader_of();
          auto [model, loader] = accelerator.prepare(net, raw);
          const std::int64_t batches = loader.size();
          require(batches == (split ? 5 : 3), "the number of micro-batches");
          std::int64_t iteration = 0;
          for (auto& batch : loader) {
            const std::int64_t in_window =
                std::min(kWindow, batches - iteration / kWindow * kWindow);
            backward(reference, accelerator.gather(batch), static_cast<double>(in_window));
            {
              const auto window = accelerator.accumulate(model);
              const at::Tensor loss = mse(model(batch.at("x")), batch.at("y"));
              if (sync_each_batch) {
                const auto scope = accelerator.trigger_sync_in_backward(model);
                accelerator.backward(loss);
              } else {
                accelerator.backward(loss);
              }
            }
            ++iteration;
            const bool closes = iteration % kWindow == 0 || iteration == batches;
            require(accelerator.sync_gradients() == closes, "sync_gradients()");
            const double scale = closes ? 1 : static_cast<double>(in_window);
            require(in_sync(reference, *net, scale) == (closes || sync_each_batch),
                    str("gradients in iteration ", iteration, ", split ", split, ", dispatch ",
                        dispatch, ", sync_each_batch ", sync_each_batch));
            if (!closes) continue;
            accelerator.mark_gradients_used();
            reference.zero_grad();
            net->zero_grad();
          }
          require(iteration == batches, "the loader's size is the number of its batches");
        });
      }
    }
  }
}

TEST_CASE("sync: windows with an optimizer and a schedule train as one process does") {
  // test_gradient_accumulation_with_opt_and_scheduler. A schedule of hasten counts optimizer steps,
  // even with several processes.
  const auto train = [](bool split, bool dispatch) {
    Accelerator accelerator(
        {.gradient_accumulation_steps = kWindow,
         .dataloader_config = {.split_batches = split, .dispatch_batches = dispatch}});
    const auto factor = [](std::int64_t step) { return std::pow(static_cast<double>(step), 0.65); };
    RegressionModel reference;
    const auto net = std::make_shared<RegressionModel>();
    torch::optim::AdamW own(reference.parameters(), 1e-3), adamw(net->parameters(), 1e-3);
    LambdaLR own_schedule(own, {factor}), lambda(adamw, {factor});
    auto raw = loader_of();
    auto [model, optimizer, scheduler, loader] = accelerator.prepare(net, adamw, lambda, raw);
    const std::int64_t batches = loader.size();
    std::int64_t iteration = 0, steps = 0;
    for (auto& batch : loader) {
      const std::int64_t in_window = std::min(kWindow, batches - iteration / kWindow * kWindow);
      backward(reference, accelerator.gather(batch), static_cast<double>(in_window));
      ++iteration;
      const bool did_step = iteration % kWindow == 0 || iteration == batches;
      if (did_step) {
        own.step();
        own_schedule.step();
        ++steps;
      }
      {
        const auto window = accelerator.accumulate(model);
        accelerator.backward(mse(model(batch.at("x")), batch.at("y")));
        optimizer.step();
        scheduler.step();
      }
      require(
          own.param_groups()[0].options().get_lr() == adamw.param_groups()[0].options().get_lr(),
          "the learning rates differ");
      if (accelerator.process().num_processes > 1 || did_step)
        require(in_sync(reference, *net) == did_step, str("gradients in iteration ", iteration));
      if (did_step) own.zero_grad();
      optimizer.zero_grad();
    }
    require(steps > 1 && optimizer.steps() == steps, "the number of optimizer steps");
    require_close(copies(net->parameters()), copies(reference.parameters()), "the weights");
  };
  debug_launcher([&] { train(false, false); }, 1);
  for (const bool split : {false, true}) {
    for (const bool dispatch : {false, true}) debug_launcher([&] { train(split, dispatch); });
  }
}

TEST_CASE("sync: an inner loop does not move the end of the outer loader") {
  // test_dataloader_break
  for (const int world : {1, 2}) {
    debug_launcher(
        [] {
          Accelerator accelerator;
          auto first = loader_of(80), second = loader_of(96);
          auto [outer, inner] = accelerator.prepare(first, second);
          std::int64_t iteration = 0;
          for (const auto& [batch, info] : with_info(outer)) {
            require(info.is_last == (iteration == outer.size() - 1), "the end of the outer loader");
            if (iteration == 1) {
              std::int64_t number = 0;
              for (const auto& [other, of_inner] : with_info(inner))
                require(of_inner.is_last == (++number == inner.size()),
                        "the end of the inner loader");
              require(number == inner.size(), "the inner loop is complete");
            }
            require(info.is_last == (iteration == outer.size() - 1),
                    "the end of the outer loader after the inner loop");
            ++iteration;
          }
          require(iteration == outer.size(), "the outer loop is complete");
        },
        world);
  }
}

}  // namespace ported_accelerate_sync_test
