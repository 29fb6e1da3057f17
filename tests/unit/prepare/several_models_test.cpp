// Backward passes of several models: their losses, windows and exchanges do not change those of
// another model. The numbers equal those of plain LibTorch in one process.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/code_of.h"
#include "unit/prepare/distributed_fixtures.h"

namespace prepare_several_models_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using namespace hasten::distributed_fixtures;

TEST_CASE("several models: models that train in turn leave each other's gradients unchanged") {
  const auto critic_loss = [](auto& critic, auto& generator, std::int64_t rank, std::int64_t i) {
    return critic(generator(own_rows(rank, i)).detach()).square().mean();
  };
  Sequential alone_generator = small_model(), alone_critic{Linear(1, 1)};
  const std::vector<at::Tensor> start = copies(alone_critic->parameters());
  const auto generator_forward = [&](const at::Tensor& x) { return alone_generator->forward(x); };
  const auto critic_forward = [&](const at::Tensor& x) { return alone_critic->forward(x); };
  for (std::int64_t i = 0; i < 2; ++i) {
    for (std::int64_t rank = 0; rank < 2; ++rank)
      (critic_loss(critic_forward, generator_forward, rank, i) / 4).backward();
  }
  const std::vector<at::Tensor> expected = copies(gradients_in(*alone_critic));
  debug_launcher([&] {
    Accelerator accelerator({.gradient_accumulation_steps = 2});
    const std::int64_t rank = accelerator.group().rank();
    Sequential raw_generator = small_model(), raw_critic{Linear(1, 1)};
    {
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < start.size(); ++i) raw_critic->parameters()[i].copy_(start[i]);
    }
    auto [generator, critic] = accelerator.prepare(raw_generator, raw_critic);
    for (std::int64_t i = 0; i < 2; ++i) {
      {
        auto guard = accelerator.accumulate(critic);
        accelerator.backward(critic_loss(critic, generator, rank, i));
      }
      auto guard = accelerator.accumulate(generator);
      accelerator.backward(critic(generator(own_rows(rank, i))).mean());
    }
    require_close(gradients_in(*raw_critic), expected, "the critic's gradients");
    require_same_on_all_ranks(accelerator.group(), gradients_in(*raw_generator), "the generator's");
  });
}

TEST_CASE("several models: each of several losses of a window reaches its own model") {
  // The passes of the first and the second model that each process makes in three micro-batches.
  struct Passes {
    bool first = true, second = true;
  };
  constexpr Passes both{}, none{false, false}, only_first{true, false}, only_second{false, true};
  struct Plan {
    std::vector<Passes> of_rank[2];
  };
  const std::vector<Plan> plans = {
      {{{both, both, both}, {both, both, both}}},
      {{{both, both, both}, {both, both, none}}},              // one skips the last pass
      {{{both, both, none}, {both, both, none}}},              // all skip it
      {{{both, both, only_first}, {both, both, only_first}}},  // no process closes the second
      {{{both, only_second, both}, {both, both, none}}},
      {{{only_first, only_first, none}, {only_first, only_first, only_first}}}};
  const auto second_model = [] {
    torch::manual_seed(9);
    return Sequential(Linear(6, 1));
  };
  for (const Plan& plan : plans) {
    Sequential alone_first = small_model(), alone_second = second_model();
    double weight = 0;
    for (const auto& of_rank : plan.of_rank)
      for (const Passes& each : of_rank) weight += each.first || each.second ? kMicroBatchRows : 0;
    bool second_trained = false;
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      for (std::int64_t i = 0; i < 3; ++i) {
        const Passes& made = plan.of_rank[rank][static_cast<std::size_t>(i)];
        const double share = kMicroBatchRows / weight;
        if (made.first) (loss_of(alone_first->forward(own_rows(rank, i))) * share).backward();
        if (made.second) (loss_of(alone_second->forward(own_rows(rank, i))) * share).backward();
        second_trained = second_trained || made.second;
      }
    }
    for (const bool joins : {false, true}) {
      for (const bool in_turn : {false, true}) {
        debug_launcher([&] {
          Accelerator accelerator({.gradient_accumulation_steps = 3});
          const std::int64_t rank = accelerator.group().rank();
          Sequential one = small_model(), two = second_model();
          torch::optim::SGD sgd_one(one->parameters(), torch::optim::SGDOptions(0.0));
          torch::optim::SGD sgd_two(two->parameters(), torch::optim::SGDOptions(0.0));
          auto [first, second, optimizer_one, optimizer_two] =
              accelerator.prepare(one, two, sgd_one, sgd_two);
          const auto windows = [&, &first = first, &second = second, &optimizer_one = optimizer_one,
                                &optimizer_two = optimizer_two] {
            for (int window = 0; window < 2; ++window) {
              for (std::int64_t i = 0; i < 3; ++i) {
                const Passes& made = plan.of_rank[rank][static_cast<std::size_t>(i)];
                auto guard = accelerator.accumulate(first, second);
                if (made.first)
                  accelerator.backward(loss_of(first(own_rows(rank, i))), kMicroBatchRows);
                if (in_turn) optimizer_one.step();
                if (made.second)
                  accelerator.backward(loss_of(second(own_rows(rank, i))), kMicroBatchRows);
                if (!in_turn) optimizer_one.step();
                optimizer_two.step();
              }
              require(optimizer_one.steps() == window + 1 && optimizer_two.steps() == window + 1,
                      "the optimizer makes one step per window");
              require_close(gradients_in(*one), gradients_in(*alone_first), "the first model");
              if (second_trained) {
                require_close(gradients_in(*two), gradients_in(*alone_second), "the second model");
              } else {
                require(!two->parameters()[0].grad().defined(), "no loss reached the second model");
              }
              optimizer_one.zero_grad();
              optimizer_two.zero_grad();
            }
          };
          if (joins) {
            auto scope = accelerator.join_uneven_inputs(first, second);
            windows();
          } else {
            windows();
          }
        });
      }
    }
  }
}

TEST_CASE("several models: processes that close a window in a different order are refused") {
  debug_launcher([] {
    Accelerator accelerator({.gradient_accumulation_steps = 2});
    Sequential one = small_model(), two = small_model();
    auto [first, second] = accelerator.prepare(one, two);
    const auto closing = code_of([&, &first = first, &second = second] {
      for (std::int64_t i = 0; i < 2; ++i) {
        auto guard = accelerator.accumulate(first, second);
        auto& own = accelerator.is_main_process() ? first : second;
        accelerator.backward(loss_of(own(own_rows(0, i))));
      }
    });
    require(closing == "prepare.pass-order", "a loss of another model: " + closing);
  });
}

TEST_CASE("several models: free_memory() without handles keeps models together") {
  debug_launcher([] {
    Accelerator accelerator({.gradient_accumulation_steps = 2});
    const std::int64_t rank = accelerator.group().rank();
    Sequential net = small_model();
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    {
      auto guard = accelerator.accumulate(model);
      accelerator.backward(loss_of(model(own_rows(rank, 0))));
    }
    accelerator.free_memory();
    optimizer.zero_grad();
    for (std::int64_t i = 0; i < 2; ++i) {
      auto guard = accelerator.accumulate(model);
      accelerator.backward(loss_of(model(own_rows(rank, i))));
      optimizer.step();
    }
    require(optimizer.steps() == 1, "a window of two micro-batches");
    require_same_on_all_ranks(accelerator.group(), copies(net->parameters()), "a weight");
  });
}

TEST_CASE("several models: an exchange does not scale the gradients of a model in no_sync") {
  debug_launcher([] {
    Accelerator accelerator;
    torch::manual_seed(4);
    Sequential body{Linear(6, 4)}, head{Linear(4, 1)};
    auto [first, second] = accelerator.prepare(body, head);
    const at::Tensor rows = own_rows(accelerator.group().rank(), 0);
    const auto loss = [&, &first = first, &second = second] {
      return loss_of(second(first(rows)));
    };
    const std::vector<at::Tensor> own = torch::autograd::grad({loss()}, head->parameters());
    for (const bool is_cleared : {true, false}) {
      first->zero_grad(is_cleared);
      head->zero_grad();
      const auto guard = accelerator.no_sync(second);
      accelerator.backward(loss());
      require_close(gradients_in(*head), own, is_cleared ? "cleared" : "with gradients");
      require_same_on_all_ranks(accelerator.group(), gradients_in(*body), "an exchanged gradient");
    }
  });
}

TEST_CASE("several models: an early exchange of one model does not change the window of another") {
  debug_launcher([] {
    Accelerator accelerator({.gradient_accumulation_steps = 2});
    const std::int64_t rank = accelerator.group().rank();
    torch::manual_seed(4);
    Sequential body{Linear(6, 4)}, head{Linear(4, 1)};
    auto [first, second] = accelerator.prepare(body, head);
    std::vector<at::Tensor> expected;
    for (const bool is_early : {false, true}) {
      first->zero_grad();
      head->zero_grad();
      for (std::int64_t i = 0; i < 2; ++i) {
        const auto window = accelerator.accumulate(first, second);
        const at::Tensor loss = loss_of(second(first(own_rows(rank, i))));
        if (is_early && i == 0) {
          const auto trigger = accelerator.trigger_sync_in_backward(first);
          accelerator.backward(loss);
        } else {
          accelerator.backward(loss);
        }
      }
      accelerator.mark_gradients_used();
      std::vector<at::Tensor> got = copies(gradients_in(*body));
      for (const at::Tensor& each : copies(gradients_in(*head))) got.push_back(each);
      if (is_early) require_close(got, expected, "with an early exchange");
      expected = got;
    }
  });
}

}  // namespace prepare_several_models_test
