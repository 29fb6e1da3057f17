// Accumulation windows in one process: which micro-batches they contain, and which gradients a
// backward pass leaves unchanged.
#include <ATen/autocast_mode.h>
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "hasten/accelerator.h"
#include "prepare/accelerator_state.h"
#include "unit/code_of.h"
#include "unit/prepare/window_nets.h"

namespace prepare_window_test {

using namespace hasten;
using torch::optim::SGDOptions;
using namespace hasten::window_nets;

TEST_CASE("window: a module under two names is divided, clipped and stepped once") {
  const auto reference = std::make_shared<SiameseModel>();
  torch::optim::SGD by_hand(reference->unique_parameters(), SGDOptions(0.1));
  for (int i = 0; i < 2; ++i) (loss_of(reference->forward(batch(i, 2))) / 2).backward();
  const at::Tensor expected = reference->branch->weight.grad().clone();

  const auto net = std::make_shared<SiameseModel>();
  REQUIRE(net->parameters().size() == 4);
  torch::optim::SGD sgd(net->parameters(), SGDOptions(0.1));
  Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  CHECK(sgd.param_groups()[0].params().size() == 2);
  for (int i = 0; i < 2; ++i) {
    const auto guard = accelerator.accumulate(model);
    accelerator.backward(loss_of(model(batch(i, 2))));
  }
  CHECK(close(net->branch->weight.grad(), expected));

  const double norm = gradient_norm(reference->unique_parameters());
  CHECK(gradient_norm(net->parameters()) == doctest::Approx(norm));
  CHECK(gradient_norm(net->parameters(), 1.0) ==
        doctest::Approx(gradient_norm(reference->unique_parameters(), 1.0)));
  CHECK(accelerator.clip_grad_norm_(model->parameters(), norm / 2) == doctest::Approx(norm));
  CHECK(gradient_norm(net->unique_parameters()) == doctest::Approx(norm / 2).epsilon(1e-4));
  hasten::clip_grad_norm_(reference->unique_parameters(), norm / 2);
  by_hand.step();
  optimizer.step();
  CHECK(close(net->branch->weight, reference->branch->weight));
}

TEST_CASE("window: a micro-batch without a backward pass counts, with weight zero") {
  for (const std::vector<int>& with_backward :
       {std::vector<int>{0, 1}, {0, 2}, {1, 2}, {2}, {0}, {0, 1, 2}}) {
    for (const bool clips : {false, true}) {
      CAPTURE(with_backward.size());
      CAPTURE(with_backward[0]);
      const auto net = std::make_shared<LinearNet>(3, 1);
      torch::optim::SGD sgd(net->parameters(), SGDOptions(0.0));
      Accelerator accelerator({.gradient_accumulation_steps = 3, .cpu = true});
      auto [model, optimizer] = accelerator.prepare(net, sgd);
      for (int i = 0; i < 3; ++i) {
        const auto guard = accelerator.accumulate(model);
        const at::Tensor loss = loss_of(model(batch(i)));
        const bool runs =
            std::find(with_backward.begin(), with_backward.end(), i) != with_backward.end();
        if (runs) accelerator.backward(loss, 5);
        if (clips) accelerator.clip_grad_norm_(model->parameters(), 1e9);
        CHECK(accelerator.sync_gradients() == (i == 2));
        optimizer.step();
        CHECK(optimizer.steps() == (i == 2 ? 1 : 0));
      }
      CHECK(close(net->layer->weight.grad(), mean_gradient(with_backward)));
      optimizer.zero_grad();
      CHECK_FALSE(net->layer->weight.grad().defined());
    }
  }
}

TEST_CASE("window: the gradients of a closed window may be cleared without a step") {
  const auto net = std::make_shared<LinearNet>(3, 1);
  torch::optim::SGD sgd(net->parameters(), SGDOptions(0.1));
  Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  for (int i = 0; i < 4; ++i) {
    const auto guard = accelerator.accumulate(model);
    accelerator.backward(loss_of(model(batch(i))));
    // Skips the step, as a program does if the norm is not finite.
    if (i == 1) optimizer.zero_grad();
    if (i == 2) optimizer.zero_grad();  // does nothing: the next window is open
  }
  CHECK(close(net->layer->weight.grad(), mean_gradient({2, 3})));
}

TEST_CASE("window: models that train in turn leave each other's gradients unchanged") {
  // The references are the gradients of the mean loss of two micro-batches, for the critic and for
  // the generator.
  const auto raw_critic = std::make_shared<LinearNet>(3, 1),
             raw_generator = std::make_shared<LinearNet>(3, 3);
  const auto critic_loss = [](auto& critic, auto& generator, int i) {
    return (critic(generator(batch(i)).detach()) - critic(batch(i + 50))).mean();
  };
  const auto plain = [](const auto& net) {
    return [net](const at::Tensor& x) { return net->forward(x); };
  };
  auto plain_critic = plain(raw_critic), plain_generator = plain(raw_generator);
  for (int i = 0; i < 2; ++i) (critic_loss(plain_critic, plain_generator, i) / 2).backward();
  const at::Tensor critic_truth = raw_critic->layer->weight.grad().clone();
  for (int i = 0; i < 2; ++i) (-plain_critic(plain_generator(batch(i))).mean() / 2).backward();
  const at::Tensor generator_truth = raw_generator->layer->weight.grad().clone();
  raw_critic->zero_grad();
  raw_generator->zero_grad();

  for (const bool generator_has_windows : {true, false}) {
    Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
    torch::optim::SGD sgd_c(raw_critic->parameters(), SGDOptions(0.0)),
        sgd_g(raw_generator->parameters(), SGDOptions(0.0));
    auto [critic, generator, critic_optimizer, generator_optimizer] =
        accelerator.prepare(raw_critic, raw_generator, sgd_c, sgd_g);
    for (int i = 0; i < 2; ++i) {
      {
        const auto guard = accelerator.accumulate(critic);
        critic_optimizer.zero_grad();
        accelerator.backward(critic_loss(critic, generator, i));
        if (i == 1) CHECK(close(raw_critic->layer->weight.grad(), critic_truth));
        if (i == 0) critic_optimizer.step();
      }
      // The generator's pass reaches the critic, whose window is open.
      const auto generator_pass = [&] {
        accelerator.backward(-critic(generator(batch(i))).mean());
        generator_optimizer.step();
      };
      if (generator_has_windows) {
        const auto guard = accelerator.accumulate(generator);
        generator_pass();
        if (i == 1) CHECK(close(raw_generator->layer->weight.grad(), generator_truth));
      } else {
        generator_pass();
        CHECK(generator_optimizer.steps() == i + 1);
        generator_optimizer.zero_grad();
      }
    }
    // After the critic's window has closed, passes in another window still leave its gradients
    // unchanged.
    if (generator_has_windows) CHECK(close(raw_critic->layer->weight.grad(), critic_truth));
    raw_critic->zero_grad();
    raw_generator->zero_grad();
  }
}

TEST_CASE("window: a module that two models share is trained by the pass of either") {
  const auto shared = std::make_shared<LinearNet>(3, 3);
  struct Head : torch::nn::Module {
    explicit Head(const std::shared_ptr<LinearNet>& body) : body(register_module("body", body)) {}
    at::Tensor forward(const at::Tensor& x) { return own(body->forward(x)); }
    std::shared_ptr<LinearNet> body;
    Linear own = register_module("own", Linear(3, 1));
  };
  const auto a = std::make_shared<Head>(shared), b = std::make_shared<Head>(shared);
  Accelerator accelerator({.cpu = true});
  auto [first, second] = accelerator.prepare(a, b);
  const auto guard = accelerator.accumulate(first);
  accelerator.backward(loss_of(first(batch(0))) + loss_of(second(batch(0))));
  CHECK(shared->layer->weight.grad().defined());
  CHECK(a->own->weight.grad().defined());
  CHECK_FALSE(b->own->weight.grad().defined());
}

TEST_CASE("window: a loss that cannot train anything is refused") {
  const auto one = std::make_shared<LinearNet>(3, 1), two = std::make_shared<LinearNet>(3, 1);
  Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
  auto [first, second] = accelerator.prepare(one, two);
  {
    const auto guard = accelerator.accumulate(first);
    CHECK(code_of([&] { accelerator.backward(loss_of(second(batch(0)))); }) ==
          "prepare.outside-loss");
    accelerator.backward(loss_of(first(batch(0))));
    CHECK(code_of([&] {
            accelerator.backward(loss_of(first(batch(0))), {.create_graph = true});
          }) == "prepare.create-graph");
  }
  CHECK(code_of([&] { accelerator.backward(loss_of(first(batch(0)))); }) == "prepare.open-window");
  accelerator.backward(loss_of(second(batch(0))));
  accelerator.free_memory();
  accelerator.backward(loss_of(first(batch(0))));
}

TEST_CASE("window: a window left before its first backward pass blocks no optimizer") {
  const auto net = std::make_shared<LinearNet>(3, 1);
  Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
  torch::optim::SGD sgd(net->parameters(), SGDOptions(0.1));
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  { const auto guard = accelerator.accumulate(model); }
  for (int i = 0; i < 3; ++i) {
    accelerator.backward(loss_of(model(batch(i))));
    optimizer.step();
    optimizer.zero_grad();
    CHECK(optimizer.steps() == i + 1);
    CHECK_FALSE((net->layer->weight.grad().defined() &&
                 net->layer->weight.grad().abs().sum().item<float>() != 0));
  }
}

TEST_CASE("window: after a loop was left inside a window, other models still train correctly") {
  const auto one = std::make_shared<LinearNet>(3, 1), two = std::make_shared<LinearNet>(3, 1);
  Accelerator accelerator({.gradient_accumulation_steps = 4, .cpu = true});
  torch::optim::SGD sgd1(one->parameters(), SGDOptions(0.1)),
      sgd2(two->parameters(), SGDOptions(0.1));
  auto [first, second, first_optimizer, second_optimizer, schedule] = accelerator.prepare(
      one, two, sgd1, sgd2, torch::optim::StepLR(sgd2, /*step_size=*/1, /*gamma=*/0.5));
  for (int i = 0; i < 2; ++i) {
    const auto guard = accelerator.accumulate(first);
    accelerator.backward(loss_of(first(batch(i))));
    first_optimizer.step();
  }
  for (int i = 0; i < 5; ++i) {
    second_optimizer.zero_grad();
    accelerator.backward(loss_of(second(batch(i))));
    CHECK(accelerator.sync_gradients());
    CHECK(accelerator.clip_grad_norm_(second->parameters(), 1.0) > 0.0);
    second_optimizer.step();
    schedule.step();
    CHECK(second_optimizer.steps() == i + 1);
  }
  // LibTorch's StepLR keeps the rate in its first step.
  CHECK(second_optimizer->param_groups()[0].options().get_lr() == doctest::Approx(0.1 / 16));
  first_optimizer.step();  // the window of the first model is still open
  CHECK(first_optimizer.steps() == 0);
}

TEST_CASE("window: a new model at the address of an old one begins its own window") {
  Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
  std::optional<LinearNet> place;
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> dead;
  const void* address = nullptr;
  for (int trial = 0; trial < 3; ++trial) {
    place.emplace(3, 1);
    CHECK((address == nullptr || address == &*place));
    address = &*place;
    auto [model] = accelerator.prepare(*place);
    const auto guard = accelerator.accumulate(model);
    CHECK_FALSE(accelerator.sync_gradients());  // the first of two micro-batches
    accelerator.backward(loss_of(model(batch(trial))));
    dead.emplace_back(place->layer->weight.getIntrusivePtr());
  }
  place.reset();
  for (const auto& parameter : dead) CHECK(parameter.expired());
}

TEST_CASE("window: parameters of no model follow the scope of their optimizer") {
  const auto net = std::make_shared<LinearNet>(3, 1);
  const at::Tensor temperature = torch::ones({1}).requires_grad_();
  torch::optim::SGD sgd({temperature}, SGDOptions(0.1));
  Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  for (int i = 0; i < 2; ++i) {
    const auto guard = accelerator.accumulate(model);
    accelerator.backward((loss_of(model(batch(i))) * temperature).sum());
    optimizer.step();
    CHECK(optimizer.steps() == i);
  }
}

TEST_CASE("window: parameters of no model are divided, stepped and cleared with the window") {
  for (const std::vector<double>& items : {std::vector<double>{1, 1}, {3, 1}}) {
    const auto net = std::make_shared<LinearNet>(3, 1);
    const at::Tensor temperature = torch::ones({1}).requires_grad_();
    torch::optim::SGD sgd({temperature}, SGDOptions(0.0));
    Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    for (int window = 0; window < 2; ++window) {
      double sum = 0;
      for (int i = 0; i < 2; ++i) {
        const double weight = items[static_cast<std::size_t>(i)];
        {
          const auto guard = accelerator.accumulate(model);
          const at::Tensor loss = loss_of(model(batch(i)));
          sum += weight * loss.item<double>();
          accelerator.backward((loss * temperature).sum(), weight);
        }
        if (i == 1) {
          CHECK(temperature.grad().item<double>() == doctest::Approx(sum / (items[0] + items[1])));
        }
        optimizer.step();
        CHECK(optimizer.steps() == window + i);
        optimizer.zero_grad();  // does nothing while the window is open
      }
      CHECK_FALSE(temperature.grad().defined());
    }
  }
}

TEST_CASE("window: a 16-bit loss does not round its micro-batch's weight, and is reported") {
  const CapturedStandardError error;
  const auto net = std::make_shared<Scale>();
  Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
  auto [model] = accelerator.prepare(net);
  {
    const auto guard = accelerator.accumulate(model);
    accelerator.backward(model(1.0), 1003);
  }
  const auto guard = accelerator.accumulate(model);
  accelerator.backward(model(0.0), 1);
  CHECK(net->weight.grad().item<double>() == doctest::Approx(1003.0 / 1004).epsilon(1e-6));
  accelerator.backward(model(1.0), 1);  // another loss of the micro-batch
  CHECK(net->weight.grad().item<double>() == doctest::Approx(1.0).epsilon(1e-6));
  const std::string text = error.text();
  const auto at = text.find("backward() was given a loss in BFloat16");
  CHECK(at != std::string::npos);
  CHECK(text.find("backward()", at + 1) == std::string::npos);  // it is reported once
}

TEST_CASE("precision: `no` keeps an existing autocast, and bf16 restores it") {
  const auto net = std::make_shared<LinearNet>(3, 1);
  Accelerator accelerator({.cpu = true});
  auto [model] = accelerator.prepare(net);
  const auto enabled = [](bool is) { at::autocast::set_autocast_enabled(at::kCPU, is); };
  const at::ScalarType before = at::autocast::get_autocast_dtype(at::kCPU);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  enabled(true);
  const at::ScalarType type = model(batch(0)).scalar_type();
  enabled(false);
  at::autocast::clear_cache();
  CHECK((type == at::kBFloat16));
  CHECK((model(batch(0)).scalar_type() == at::kFloat));

  at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
  {
    const AutocastGuard guard(Precision::bf16, at::kCPU);
    CHECK((net->forward(batch(0)).scalar_type() == at::kBFloat16));
  }
  CHECK((at::autocast::get_autocast_dtype(at::kCPU) == at::kHalf));
  CHECK_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  at::autocast::set_autocast_dtype(at::kCPU, before);
}

TEST_CASE("backward: it takes retain_graph, create_graph and inputs as LibTorch's does") {
  const auto net = std::make_shared<LinearNet>(3, 1), reference = std::make_shared<LinearNet>(3, 1);
  Accelerator accelerator({.cpu = true});
  auto [model] = accelerator.prepare(net);
  loss_of(reference->forward(batch(0))).backward();
  const at::Tensor once = reference->layer->weight.grad();

  const at::Tensor loss = loss_of(model(batch(0)));
  accelerator.backward(loss, {.retain_graph = true});
  accelerator.backward(loss, 7);
  CHECK(close(net->layer->weight.grad(), 2 * once));
  CHECK_THROWS_AS(accelerator.backward(loss), c10::Error);

  net->zero_grad();
  accelerator.backward(loss_of(model(batch(0))), {.create_graph = true});
  CHECK(net->layer->weight.grad().requires_grad());
  net->zero_grad();
  const at::Tensor x = batch(0).requires_grad_();
  accelerator.backward(loss_of(model(x)), {.inputs = {x, net->layer->bias}});
  CHECK(x.grad().defined());
  CHECK(net->layer->bias.grad().defined());
  CHECK_FALSE(net->layer->weight.grad().defined());
}

TEST_CASE("window: models that share parameters have one window at a time") {
  const auto trunk = std::make_shared<LinearNet>(3, 3), head = std::make_shared<LinearNet>(3, 1);
  const auto other_head = std::make_shared<LinearNet>(3, 1);
  Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
  auto [body, first, second] = accelerator.prepare(trunk, head, other_head);
  const auto accumulate = [&, &body = body](auto& own_head) {
    const auto guard = accelerator.accumulate(body, own_head);
    accelerator.backward(loss_of(own_head(body(batch(0)))));
  };
  accumulate(first);
  CHECK(code_of([&, &second = second] { accumulate(second); }) == "prepare.shared-window");
  accumulate(first);  // the window continues and closes
  const at::Tensor gradient = trunk->layer->weight.grad().clone();
  trunk->zero_grad();
  head->zero_grad();
  accumulate(second);  // tasks may alternate if each has whole windows
  accumulate(second);
  CHECK(trunk->layer->weight.grad().defined());
  trunk->zero_grad();
  head->zero_grad();
  accumulate(first);
  accumulate(first);
  CHECK(at::allclose(trunk->layer->weight.grad(), gradient));

  // The program drops an abandoned window of the shared trunk, as the error advises.
  {
    const auto guard = accelerator.accumulate(body);
    accelerator.backward(loss_of(body(batch(0))));
  }
  CHECK(code_of([&, &first = first] { accumulate(first); }) == "prepare.shared-window");
  accelerator.free_memory();
  accumulate(first);
}

TEST_CASE("window: a backward pass that throws does not count") {
  const auto net = std::make_shared<LinearNet>(3, 1), same = std::make_shared<LinearNet>(3, 1);
  {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < net->parameters().size(); ++i)
      same->parameters()[i].copy_(net->parameters()[i]);
  }
  Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
  auto [model, expected] = accelerator.prepare(net, same);
  for (int i = 0; i < 2; ++i) {
    const auto guard = accelerator.accumulate(model);
    const at::Tensor loss = loss_of(model(batch(i)));
    const bool fails = i == 1;
    if (fails) {
      const at::Tensor failing = loss + 0;
      failing.register_hook(
          [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("no memory left"); });
      CHECK_THROWS(accelerator.backward(failing * 1.0));
    }
    accelerator.backward(loss);
  }
  for (int i = 0; i < 2; ++i) {
    const auto guard = accelerator.accumulate(expected);
    accelerator.backward(loss_of(expected(batch(i))));
  }
  CHECK(at::allclose(net->layer->weight.grad(), same->layer->weight.grad()));
}

TEST_CASE("window: a backward pass of a 16-bit loss that throws keeps the earlier gradients") {
  const auto net = std::make_shared<Scale>();
  Accelerator accelerator({.gradient_accumulation_steps = 3, .cpu = true});
  auto [model] = accelerator.prepare(net);
  for (int i = 0; i < 3; ++i) {
    const auto guard = accelerator.accumulate(model);
    const at::Tensor loss = model(1.0);
    if (i != 1) {
      accelerator.backward(loss, 4);
      continue;
    }
    const at::Tensor failing = loss + 0;
    failing.register_hook(
        [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("no memory left"); });
    CHECK_THROWS(accelerator.backward(failing * 1.0, 300));
  }
  CHECK(net->weight.grad().item<double>() == doctest::Approx(1.0));
}

TEST_CASE("window: the step reports a model that accumulate() did not get") {
  const auto body_net = std::make_shared<LinearNet>(3, 3),
             head_net = std::make_shared<LinearNet>(3, 1);
  std::vector<at::Tensor> both = body_net->parameters();
  for (const at::Tensor& each : head_net->parameters()) both.push_back(each);
  for (const bool names_both : {false, true}) {
    Accelerator accelerator({.cpu = true});
    torch::optim::SGD sgd(both, SGDOptions(0.1));
    auto [body, head, optimizer] = accelerator.prepare(body_net, head_net, sgd);
    const CapturedStandardError error;
    {
      const auto guard =
          names_both ? accelerator.accumulate(body, head) : accelerator.accumulate(head);
      accelerator.backward(loss_of(head(body(batch(0)))));
      optimizer.step();
    }
    const bool is_reported =
        error.text().find("whose models were not passed to accumulate()") != std::string::npos;
    CHECK(is_reported == !names_both);
  }
}

}  // namespace prepare_window_test
