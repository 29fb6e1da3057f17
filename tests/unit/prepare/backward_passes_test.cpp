// Backward passes and windows that differ between processes: skipped micro-batches, passes in
// no_sync, parameters that are frozen and unfrozen, manual passes. The numbers equal those of plain
// LibTorch in one process. several_models_test.cpp has the passes of several models.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/code_of.h"
#include "unit/prepare/distributed_fixtures.h"

namespace prepare_backward_passes_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using namespace hasten::distributed_fixtures;

namespace {

// Two layers, of which the first can be frozen.
struct TwoLayers : torch::nn::Module {
  TwoLayers() {
    torch::manual_seed(3);
    first = register_module("first", Linear(6, 8));
    second = register_module("second", Linear(8, 1));
  }
  at::Tensor forward(const at::Tensor& x) { return second(torch::tanh(first(x))); }
  Linear first{nullptr}, second{nullptr};
};

struct SiameseNet : torch::nn::Module {
  SiameseNet() {
    torch::manual_seed(3);
    branch = register_module("left", Linear(6, 6));
    register_module("right", branch);
  }
  at::Tensor forward(const at::Tensor& x) { return branch(torch::tanh(branch(x))); }
  Linear branch{nullptr};
};

struct RoundedScale : torch::nn::Module {
  at::Tensor weight = register_parameter("weight", torch::ones({1}));
  at::Tensor forward(double factor) { return (weight.to(at::kBFloat16) * factor).sum(); }
};

struct PartlyEmptyNet : torch::nn::Module {
  at::Tensor weight = register_parameter("weight", torch::ones({6}));
  at::Tensor nothing = register_parameter("nothing", torch::ones({0}));
  at::Tensor forward(const at::Tensor& x) { return (x * weight).sum(1) + nothing.sum(); }
};

}  // namespace

TEST_CASE("passes: each process may skip the backward pass of other micro-batches") {
  // True for each of the three micro-batches in which a process runs a backward pass. A process may
  // skip the closing one.
  struct Plan {
    std::vector<bool> runs_backward[2];
  };
  for (const Plan& plan : {Plan{{{true, true, false}, {true, true, true}}},
                           Plan{{{true, true, true}, {true, false, false}}},
                           Plan{{{true, true, false}, {true, true, false}}},
                           Plan{{{false, false, false}, {true, false, true}}},
                           Plan{{{false, true, true}, {true, true, false}}}}) {
    Sequential alone = small_model();
    double weight = 0;
    for (std::int64_t rank = 0; rank < 2; ++rank)
      for (std::size_t i = 0; i < 3; ++i) weight += plan.runs_backward[rank][i] ? 1 : 0;
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      for (std::size_t i = 0; i < 3; ++i) {
        if (plan.runs_backward[rank][i])
          (loss_of(alone->forward(own_rows(rank, static_cast<std::int64_t>(i)))) / weight)
              .backward();
      }
    }
    for (const bool by_items : {false, true}) {
      for (const bool unused : {false, true}) {
        debug_launcher([&] {
          Accelerator accelerator(
              {.gradient_accumulation_steps = 3, .ddp = {.find_unused_parameters = unused}});
          const std::int64_t rank = accelerator.group().rank();
          Sequential net = small_model();
          torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.0));
          auto [model, optimizer] = accelerator.prepare(net, sgd);
          for (int window = 0; window < 2; ++window) {
            for (std::size_t i = 0; i < 3; ++i) {
              auto guard = accelerator.accumulate(model);
              const at::Tensor loss = loss_of(model(own_rows(rank, static_cast<std::int64_t>(i))));
              if (plan.runs_backward[rank][i])
                by_items ? accelerator.backward(loss, kMicroBatchRows) : accelerator.backward(loss);
              if (window == 1) accelerator.clip_grad_norm_(model->parameters(), 1e9);
              optimizer.step();
              if (i < 2) optimizer.zero_grad();
            }
            require(optimizer.steps() == window + 1, "the optimizer makes one step per window");
            require_close(gradients_in(*net), gradients_in(*alone), "gradients");
            require_same_on_all_ranks(accelerator.group(), gradients_in(*net), "a gradient");
            optimizer.zero_grad();
          }
        });
      }
    }
  }
}

TEST_CASE("passes: without a closing pass, a parameter without elements adds zeros") {
  const at::Tensor expected =
      (own_rows(0, 0).mean(0) + own_rows(0, 1).mean(0) + own_rows(1, 0).mean(0)) / 3;
  for (const bool unused : {false, true}) {
    debug_launcher([&] {
      Accelerator accelerator(
          {.gradient_accumulation_steps = 2, .ddp = {.find_unused_parameters = unused}});
      const std::int64_t rank = accelerator.group().rank();
      const auto net = std::make_shared<PartlyEmptyNet>();
      torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.0));
      auto [model, optimizer] = accelerator.prepare(net, sgd);
      for (std::int64_t i = 0; i < 2; ++i) {
        auto guard = accelerator.accumulate(model);
        const at::Tensor loss = model(own_rows(rank, i)).mean();
        if (rank == 0 || i == 0) accelerator.backward(loss);
        optimizer.step();
      }
      require_close({net->weight.grad()}, {expected}, "gradient");
    });
  }
}

TEST_CASE("passes: a window whose last backward pass is missing everywhere is refused") {
  debug_launcher([] {
    Accelerator single, windows({.gradient_accumulation_steps = 2});
    Sequential net = small_model(), other = small_model();
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
    auto [model, optimizer] = single.prepare(net, sgd);
    {
      auto guard = single.accumulate(model);
      require(code_of([&, &optimizer = optimizer] { optimizer.step(); }) == "prepare.open-window",
              "a window of one without a backward pass");
    }
    auto [second] = windows.prepare(other);
    for (int i = 0; i < 2; ++i) {
      auto guard = windows.accumulate(second);
      if (i == 0) windows.backward(loss_of(second(own_rows(0, 0))));
    }
    require(code_of([&, &second = second] { auto guard = windows.accumulate(second); }) ==
                "prepare.open-window",
            "neither a backward pass nor a step");
  });
}

TEST_CASE("passes: a module under two names trains as in one process") {
  const auto alone = std::make_shared<SiameseNet>();
  torch::optim::SGD reference({alone->branch->weight, alone->branch->bias}, 0.1);
  for (std::int64_t step = 0; step < 3; ++step) {
    reference.zero_grad();
    for (std::int64_t i = 0; i < 2; ++i) {
      for (std::int64_t rank = 0; rank < 2; ++rank)
        (loss_of(alone->forward(own_rows(rank, 2 * step + i))) / 4).backward();
    }
    hasten::clip_grad_norm_({alone->branch->weight, alone->branch->bias}, 0.5);
    reference.step();
  }
  const std::vector<at::Tensor> expected = copies({alone->branch->weight, alone->branch->bias});
  for (const bool views : {true, false}) {
    debug_launcher([&] {
      Accelerator accelerator(
          {.gradient_accumulation_steps = 2, .ddp = {.gradient_as_bucket_view = views}});
      const auto net = std::make_shared<SiameseNet>();
      torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
      auto [model, optimizer] = accelerator.prepare(net, sgd);
      for (std::int64_t i = 0; i < 6; ++i) {
        auto guard = accelerator.accumulate(model);
        accelerator.backward(loss_of(model(own_rows(accelerator.group().rank(), i))));
        accelerator.clip_grad_norm_(model->parameters(), 0.5);
        optimizer.step();
        optimizer.zero_grad();
      }
      require_close({net->branch->weight, net->branch->bias}, expected, "weights");
    });
  }
}

TEST_CASE("passes: a second loss of the last micro-batch adds to the exchanged gradients") {
  Sequential alone = small_model();
  const auto parts = [](auto& model, std::int64_t rank, std::int64_t i) {
    return loss_of(model(own_rows(rank, i)));
  };
  const auto forward = [&](const at::Tensor& x) { return alone->forward(x); };
  // The processes have weights of 1 and 3 in both micro-batches; the last one has a second loss.
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    const double share = (1 + 2 * static_cast<double>(rank)) / 8;
    for (const std::int64_t i : {0, 1, 2}) (parts(forward, rank, i) * share).backward();
  }
  debug_launcher([&] {
    Accelerator accelerator({.gradient_accumulation_steps = 2});
    const std::int64_t rank = accelerator.group().rank();
    Sequential net = small_model();
    auto [model] = accelerator.prepare(net);
    const double items = 1 + 2 * static_cast<double>(rank);
    for (const std::int64_t i : {0, 1}) {
      auto guard = accelerator.accumulate(model);
      accelerator.backward(parts(model, rank, i), items);
      if (i == 1) accelerator.backward(parts(model, rank, 2), items);
    }
    require_close(gradients_in(*net), gradients_in(*alone), "gradients");
  });
}

TEST_CASE("passes: parameters frozen and unfrozen after prepare() are exchanged accordingly") {
  // The first layer trains from the third of 6 steps on, and the last one until the fourth.
  const auto freeze = [](TwoLayers& net, std::int64_t step) {
    for (at::Tensor& each : net.first->parameters()) each.requires_grad_(step >= 2);
    for (at::Tensor& each : net.second->parameters()) each.requires_grad_(step < 4);
  };
  const auto alone = std::make_shared<TwoLayers>();
  torch::optim::SGD reference(alone->parameters(), 0.1);
  for (std::int64_t step = 0; step < 6; ++step) {
    freeze(*alone, step);
    reference.zero_grad();
    for (std::int64_t rank = 0; rank < 2; ++rank)
      (loss_of(alone->forward(own_rows(rank, step))) / 2).backward();
    reference.step();
  }
  const std::vector<at::Tensor> expected = copies(alone->parameters());
  for (const bool views : {true, false}) {
    debug_launcher([&] {
      Accelerator accelerator({.ddp = {.gradient_as_bucket_view = views}});
      const auto net = std::make_shared<TwoLayers>();
      freeze(*net, 0);
      torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
      auto [model, optimizer] = accelerator.prepare(net, sgd);
      for (std::int64_t step = 0; step < 6; ++step) {
        freeze(*net, step);
        optimizer.zero_grad();
        accelerator.backward(loss_of(model(own_rows(accelerator.group().rank(), step))));
        optimizer.step();
        require_same_on_all_ranks(accelerator.group(), copies(net->parameters()), "a weight");
      }
      require_close(copies(net->parameters()), expected, "weights");
    });
  }
  debug_launcher([] {
    Accelerator accelerator;
    const auto net = std::make_shared<TwoLayers>();
    auto [model] = accelerator.prepare(net);
    (accelerator.is_main_process() ? net->first : net->second)->bias.requires_grad_(false);
    require(code_of([&, &model = model] {
              accelerator.backward(loss_of(model(own_rows(0, 0))));
            }) == "prepare.models-differ",
            "each process freezes a different parameter");
  });
}

TEST_CASE("passes: processes may make different numbers of passes in no_sync") {
  for (const bool in_window : {false, true}) {
    debug_launcher([=] {
      Accelerator accelerator;
      const std::int64_t rank = accelerator.group().rank();
      Sequential net = small_model(), alone = small_model();
      auto [model] = accelerator.prepare(net);
      // The last pass has 2 and 3 items, and the gradients held back count with the same weight.
      for (std::int64_t of_rank = 0; of_rank < 2; ++of_rank) {
        for (std::int64_t i = 0; i < of_rank + 2; ++i) {
          const double share = static_cast<double>(2 + of_rank) / 5.0;
          (loss_of(alone->forward(own_rows(of_rank, i))) * share).backward();
        }
      }
      const double items = 2.0 + static_cast<double>(rank);
      const auto make_passes = [&, &model = model] {
        for (std::int64_t i = 0; i <= rank; ++i) {
          const auto guard = accelerator.no_sync(model);
          accelerator.backward(loss_of(model(own_rows(rank, i))), items);
        }
        accelerator.backward(loss_of(model(own_rows(rank, rank + 1))), items);
      };
      if (in_window) {
        const auto window = accelerator.accumulate(model);
        make_passes();
      } else {
        make_passes();
      }
      require_close(gradients_in(*net), gradients_in(*alone), in_window ? "in a window" : "alone");
    });
  }
}

TEST_CASE("passes: gradients from loss.backward() are refused by the step") {
  debug_launcher([] {
    Accelerator accelerator;
    const std::int64_t rank = accelerator.group().rank();
    Sequential net = small_model();
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    const auto step = [&, &optimizer = optimizer] { return code_of([&] { optimizer.step(); }); };
    const auto loss = [&, &model = model] { return loss_of(model(own_rows(rank, 0))); };

    loss().backward();
    require(step() == "prepare.raw-backward", "loss.backward() is not refused");
    const at::Tensor kept = net->parameters()[0].grad().clone();
    require(code_of([&, &model = model] {
              accelerator.clip_grad_norm_(model->parameters(), 1.0);
            }) == "prepare.raw-backward",
            "clipped by hand");
    // Gradients that an exchange includes are valid, and cleared ones do not matter.
    accelerator.backward(loss());
    require(step() == "none", "exchanged afterwards");
    optimizer.zero_grad();
    loss().backward();
    optimizer.zero_grad();
    accelerator.backward(loss());
    require(step() == "none", "cleared afterwards");
    optimizer.zero_grad(/*set_to_none=*/false);
    loss().backward();
    optimizer.zero_grad(/*set_to_none=*/false);
    require(step() == "none", "cleared to zeros");
    // This gradient is computed and not accumulated.
    torch::autograd::grad({loss()}, net->parameters());
    require(step() == "none", "torch::autograd::grad");
    {
      const auto guard = accelerator.no_sync(model);
      loss().backward();
    }
    require(step() == "none", "inside of no_sync");
    optimizer.zero_grad();
    {
      LocalSGD local_sgd(accelerator, model, {.local_sgd_steps = 1});
      loss().backward();
      require(step() == "none", "with LocalSGD");
      local_sgd.step();
    }
    require_same_on_all_ranks(accelerator.group(), copies(net->parameters()), "a weight");
  });
}

TEST_CASE("passes: a loss without a gradient is refused, and the next pass is unchanged") {
  Accelerator accelerator({.cpu = true});
  Sequential net = small_model();
  auto [model] = accelerator.prepare(net);
  const auto loss = [&model = model] { return loss_of(model(own_rows(0, 0))); };
  CHECK(code_of([&] { accelerator.backward(loss().detach()); }) == "prepare.loss-without-gradient");
  CHECK(code_of([&] { accelerator.backward(at::ones({})); }) == "prepare.loss-without-gradient");
  CHECK_FALSE(net->parameters()[0].grad().defined());
  accelerator.backward(loss());
  CHECK(net->parameters()[0].grad().defined());
}

TEST_CASE("passes: retain_graph and inputs work, and create_graph is refused") {
  Sequential alone = small_model();
  for (std::int64_t rank = 0; rank < 2; ++rank)
    loss_of(alone->forward(own_rows(rank, 0))).backward();
  const std::vector<at::Tensor> expected = gradients_in(*alone);  // twice the mean
  debug_launcher([&] {
    Accelerator accelerator, unused({.ddp = {.find_unused_parameters = true}});
    const std::int64_t rank = accelerator.group().rank();
    Sequential net = small_model();
    auto [model] = accelerator.prepare(net);
    const at::Tensor loss = loss_of(model(own_rows(rank, 0)));
    accelerator.backward(loss, {.retain_graph = true});
    const std::vector<at::Tensor> once = copies(gradients_in(*net));
    net->zero_grad();
    accelerator.backward(loss);
    require_close(copies(gradients_in(*net)), once, "the second pass");
    for (const at::Tensor& each : once) each.mul_(2);
    require_close(once, expected, "the mean");
    net->zero_grad();
    require(code_of([&, &model = model] {
              accelerator.backward(loss_of(model(own_rows(rank, 0))), {.create_graph = true});
            }) == "prepare.create-graph",
            "create_graph");
    // If only the data need a gradient, nothing is exchanged.
    const at::Tensor x = own_rows(rank, 0).clone().requires_grad_();
    if (rank == 0) accelerator.backward(loss_of(model(x)), {.inputs = {x}});
    require(x.grad().defined() == (rank == 0), "the gradient of the data");
    require(!net->parameters()[0].grad().defined(), "a parameter has a gradient");
    const at::Tensor bias = net->parameters().back();
    require(code_of([&, &model = model] {
              accelerator.backward(loss_of(model(x)), {.inputs = {bias}});
            }) == "prepare.unused-parameters",
            "a part of a model");

    Sequential part = small_model();
    auto [loose] = unused.prepare(part);
    unused.backward(loss_of(loose(own_rows(rank, 0))), {.inputs = {part->parameters().back()}});
    require_close({part->parameters().back().grad() * 2}, {expected.back()},
                  "the gradient of the part");
    require(!part->parameters()[0].grad().defined(), "another parameter has a gradient");
  });
}

TEST_CASE("passes: a loss in 16 bits does not round the weight of its process") {
  debug_launcher([] {
    for (const std::int64_t window : {1, 2}) {
      Accelerator accelerator({.gradient_accumulation_steps = window, .cpu = true});
      const auto net = std::make_shared<RoundedScale>();
      auto [model] = accelerator.prepare(net);
      const bool main = accelerator.is_main_process();
      for (std::int64_t i = 0; i < window; ++i) {
        auto guard = accelerator.accumulate(model);
        accelerator.backward(model(main ? 1.0 : 0.0), main ? 1003 : 1);
      }
      const double got = net->weight.grad().item<double>();
      require(std::abs(got - 1003.0 / 1004) < 1e-6, str("windows of ", window, ": ", got));
    }
  });
}

TEST_CASE("passes: LBFGS makes the steps of one process") {
  const auto lbfgs = [](Sequential& net) {
    return torch::optim::LBFGS(
        net->parameters(),
        torch::optim::LBFGSOptions(0.5).max_iter(4).line_search_fn("strong_wolfe"));
  };
  Sequential alone = small_model();
  torch::optim::LBFGS reference = lbfgs(alone);
  // The first process has two thirds of the rows, so that the mean differs from the mean of the
  // processes' means.
  const at::Tensor rows = rows_of(6);
  double plain_loss = 0;
  for (int step = 0; step < 2; ++step) {
    plain_loss = reference
                     .step([&] {
                       reference.zero_grad();
                       const at::Tensor loss = loss_of(alone->forward(rows));
                       loss.backward();
                       return loss;
                     })
                     .item<double>();
  }
  const std::vector<at::Tensor> expected = copies(alone->parameters());
  for (const std::int64_t window : {1, 2}) {
    debug_launcher([&] {
      Accelerator accelerator({.gradient_accumulation_steps = window});
      const bool main = accelerator.is_main_process();
      const at::Tensor own = main ? rows.narrow(0, 0, 4) : rows.narrow(0, 4, 2);
      Sequential net = small_model();
      torch::optim::LBFGS raw = lbfgs(net);
      auto [model, optimizer] = accelerator.prepare(net, raw);
      double loss = 0;
      for (int step = 0; step < 2; ++step) {
        const auto closure = [&, &model = model, &optimizer = optimizer] {
          optimizer.zero_grad();
          at::Tensor mean = torch::zeros({});
          for (const at::Tensor& part : own.chunk(window)) {
            auto guard = accelerator.accumulate(model);
            const at::Tensor each = loss_of(model(part));
            accelerator.backward(each, static_cast<double>(part.size(0)));
            mean += each.detach() / static_cast<double>(window);
          }
          return mean;
        };
        loss = optimizer.step(closure).item<double>();
      }
      require(std::abs(loss - plain_loss) < 1e-4, str("a loss of ", loss, ", not ", plain_loss));
      require_close(copies(net->parameters()), expected, "weights", 1e-3);
      require_same_on_all_ranks(accelerator.group(), copies(net->parameters()), "a weight");
    });
  }
}

}  // namespace prepare_backward_passes_test
