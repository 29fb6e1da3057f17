// Local SGD: processes that train separately and average their weights give the reference weights.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/code_of.h"
#include "unit/prepare/distributed_fixtures.h"

namespace prepare_local_sgd_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using namespace hasten::distributed_fixtures;

namespace {

at::Tensor rows_of(std::int64_t rank, std::int64_t step) {
  torch::manual_seed(1000 * rank + step);
  return torch::randn({4, 6});
}

void average_reference(std::vector<Sequential>& models) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < models[0]->parameters().size(); ++i) {
    at::Tensor sum = torch::zeros_like(models[0]->parameters()[i]);
    for (Sequential& model : models) sum += model->parameters()[i];
    for (Sequential& model : models)
      model->parameters()[i].copy_(sum / static_cast<double>(models.size()));
  }
}

// Trains one model for each process, all in this process.
std::vector<at::Tensor> reference_weights(std::int64_t world, std::int64_t steps,
                                          std::int64_t every) {
  std::vector<Sequential> models;
  std::vector<std::unique_ptr<torch::optim::SGD>> optimizers;
  for (std::int64_t rank = 0; rank < world; ++rank) {
    models.push_back(small_model());
    optimizers.push_back(std::make_unique<torch::optim::SGD>(
        models.back()->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)));
  }
  for (std::int64_t step = 0; step < steps; ++step) {
    for (std::int64_t rank = 0; rank < world; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      optimizers[at]->zero_grad();
      loss_of(models[at]->forward(rows_of(rank, step))).backward();
      optimizers[at]->step();
    }
    if ((step + 1) % every == 0) average_reference(models);
  }
  average_reference(models);
  return copies(models[0]->parameters());
}

}  // namespace

TEST_CASE("local SGD: weights equal the reference in 2 and 3 processes") {
  for (const int world : {2, 3}) {
    for (const std::int64_t every : {1, 3, 4}) {
      const std::vector<at::Tensor> expected = reference_weights(world, 8, every);
      debug_launcher(
          [&] {
            Accelerator accelerator;
            const std::int64_t rank = accelerator.group().rank();
            Sequential net = small_model();
            torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
            auto [model, optimizer] = accelerator.prepare(net, sgd);
            {
              LocalSGD local_sgd(accelerator, model, {.local_sgd_steps = every});
              for (std::int64_t step = 0; step < 8; ++step) {
                optimizer.zero_grad();
                accelerator.backward(loss_of(model(rows_of(rank, step))));
                optimizer.step();
                local_sgd.step();
                require(local_sgd.averages() == (step + 1) / every, "the number of averages");
              }
            }
            require_close(net->parameters(), expected, str(world, " processes, every ", every));
            // After the scope gradients are exchanged again.
            optimizer.zero_grad();
            accelerator.backward(loss_of(model(rows_of(rank, 99))));
            const at::Tensor gradient = net->parameters()[0].grad();
            require(at::equal(gradient, accelerator.group().broadcast(gradient)),
                    "the gradients differ after the scope");
          },
          world);
    }
  }
}

TEST_CASE("local SGD: each process divides a window by its own items") {
  debug_launcher([] {
    Accelerator accelerator({.gradient_accumulation_steps = 2});
    const std::int64_t rank = accelerator.group().rank();
    Sequential net = small_model(), reference = small_model();
    auto [model] = accelerator.prepare(net);
    LocalSGD local_sgd(accelerator, model, {.local_sgd_steps = 2});
    for (int batch = 0; batch < 2; ++batch) {
      auto guard = accelerator.accumulate(model);
      accelerator.backward(loss_of(model(rows_of(rank, batch))), batch == 0 ? 4 : 12);
      local_sgd.step();
    }
    (loss_of(reference->forward(rows_of(rank, 0))) * 0.25 +
     loss_of(reference->forward(rows_of(rank, 1))) * 0.75)
        .backward();
    for (std::size_t i = 0; i < net->parameters().size(); ++i)
      require_close({net->parameters()[i].grad()}, {reference->parameters()[i].grad()}, "gradient");
    require(local_sgd.averages() == 0, "a window is one step");
  });
}

TEST_CASE("local SGD: it does nothing if disabled or in one process, and refuses other models") {
  debug_launcher([] {
    Accelerator accelerator;
    Sequential net = small_model(), other = small_model();
    auto [model, second] = accelerator.prepare(net, other);
    const at::Tensor own = rows_of(accelerator.group().rank(), 0);
    const auto same = [&] {
      const at::Tensor gradient = net->parameters()[0].grad();
      const at::Tensor all = accelerator.group().gather(gradient.unsqueeze(0));
      return at::equal(all[0], all[1]);
    };
    {
      LocalSGD off(accelerator, model, {.local_sgd_steps = 1, .enabled = false});
      accelerator.backward(loss_of(model(own)));
      require(same(), "the gradients were not exchanged");
      off.step();
      require(off.averages() == 0, "the weights were averaged");
    }
    LocalSGD on(accelerator, model);
    accelerator.backward(loss_of(model(own)));
    require(!same(), "the gradients were exchanged");
    require(code_of([&] { accelerator.backward(loss_of(model(own)) + loss_of(second(own))); }) ==
                "prepare.local-sgd-mixed",
            "one of two");
    require(code_of([&] { LocalSGD never(accelerator, model, {.local_sgd_steps = 0}); }) ==
                "prepare.local-sgd-steps",
            "every 0 steps");
  });
  Accelerator alone;
  Sequential net = small_model();
  auto [model] = alone.prepare(net);
  LocalSGD local_sgd(alone, model, {.local_sgd_steps = 1});
  local_sgd.step();
  CHECK(local_sgd.averages() == 0);
}

}  // namespace prepare_local_sgd_test
