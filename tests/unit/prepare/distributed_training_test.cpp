// Several forks of this process train one model and compute the same numbers as one process with
// all of the data. A check that fails in a process throws, which ends the test here.
#include <doctest/doctest.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/text.h"
#include "hasten/data/loader.h"
#include "hasten/process/notebook_launcher.h"
#include "prepare/model_consistency.h"
#include "process/backend/call_checker.h"
#include "unit/code_of.h"
#include "unit/prepare/distributed_fixtures.h"

namespace prepare_distributed_training_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using namespace hasten::distributed_fixtures;

namespace {

// Returns the weights after some steps on whole batches, in one process and without hasten.
std::vector<at::Tensor> single_process_weights(std::int64_t rows_per_step, int steps) {
  Sequential model = small_model();
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  const at::Tensor rows = rows_of(rows_per_step * steps);
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    loss_of(model->forward(rows.narrow(0, step * rows_per_step, rows_per_step))).backward();
    optimizer.step();
  }
  return copies(model->parameters());
}

// Trains the same model in the processes of a launch. Each process has its part of every step.
void train_together(const std::vector<at::Tensor>& expected, const AcceleratorOptions& options,
                    double tolerance = 1e-6) {
  constexpr int kSteps = 5;
  Accelerator accelerator(options);
  const Group& group = accelerator.group();
  torch::manual_seed(100 + group.rank());
  Sequential net(Linear(6, 8), torch::nn::Tanh(), Linear(8, 1));  // different weights per process
  if (group.rank() == 0) net = small_model();
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  const at::Tensor rows = rows_of(12 * kSteps);
  const std::int64_t share = 12 / group.size();
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad(step % 2 == 0);
    const at::Tensor own = rows.narrow(0, step * 12 + group.rank() * share, share);
    accelerator.backward(loss_of(model(own)));
    optimizer.step();
  }
  const DistributedDataParallelKwargs& ddp = options.ddp;
  require_close(net->parameters(), expected,
                str("weights on ", group.size(), " processes, unused ", ddp.find_unused_parameters,
                    ", views ", ddp.gradient_as_bucket_view, ", static ", ddp.static_graph, ", ",
                    name_of(ddp.comm_hook)),
                tolerance);
}

std::vector<at::Tensor> gradients_of(const torch::nn::Module& module) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : module.parameters()) all.push_back(parameter.grad());
  return all;
}

}  // namespace

TEST_CASE("distributed: two, three and four processes give the weights of one process") {
  const std::vector<at::Tensor> expected = single_process_weights(12, 5);
  for (const int count : {2, 3, 4}) {
    debug_launcher([&] { train_together(expected, {}); }, count);
  }
}

TEST_CASE("distributed: every option of the gradient exchange gives the same weights") {
  const std::vector<at::Tensor> expected = single_process_weights(12, 5);
  debug_launcher([&] { train_together(expected, {.ddp = {.bucket_cap_mb = 1}}); });
  debug_launcher([&] { train_together(expected, {.ddp = {.find_unused_parameters = true}}); });
  debug_launcher([&] { train_together(expected, {.ddp = {.gradient_as_bucket_view = false}}); });
  debug_launcher([&] { train_together(expected, {.ddp = {.static_graph = true}}); });
  debug_launcher(
      [&] { train_together(expected, {.ddp = {.comm_hook = CommunicationHook::fp16}}, 2e-3); });
  debug_launcher(
      [&] { train_together(expected, {.ddp = {.comm_hook = CommunicationHook::bf16}}, 2e-2); });
}

TEST_CASE("distributed: equal weights are not sent, and different ones become those of rank 0") {
  Sequential shared = small_model();
  debug_launcher(
      [&] {
        const Group group = Group::form(this_worker());
        require(equalize_weights(*shared, group) == 0, "the weights of a forked model were sent");
        if (group.rank() == 2) {
          const torch::NoGradGuard no_grad;
          shared->parameters()[1].add_(1);
        }
        const at::Tensor first = shared->parameters()[1].detach().clone();
        require(equalize_weights(*shared, group) == 1, "not exactly one tensor was sent");
        require_close(shared->parameters(), small_model()->parameters(), "weights");
        require(group.rank() == 2 || at::equal(first, shared->parameters()[1]),
                "other weights of a rank have changed");
      },
      3);
}

TEST_CASE("distributed: the error for different models says what differs and where") {
  const auto check_difference_reported = [](const std::function<Sequential(std::int64_t)>& made,
                                            const std::string& expected_text) {
    debug_launcher(
        [&] {
          Accelerator accelerator;
          Sequential net = made(accelerator.group().rank());
          try {
            accelerator.prepare(net);
          } catch (const UsageError& error) {
            require(error.code() == "prepare.models-differ", error.code());
            require(std::string(error.what()).find(expected_text) != std::string::npos,
                    error.what());
            return;
          }
          throw std::runtime_error("nothing was thrown");
        },
        3);
  };
  check_difference_reported(
      [](std::int64_t rank) { return Sequential(Linear(4, rank == 1 ? 3 : 2)); },
      "differs on rank 1: got 0.weight Float [3, 4], expected 0.weight Float [2, 4], as on rank "
      "0");
  check_difference_reported(
      [](std::int64_t rank) {
        return rank == 2 ? Sequential(Linear(4, 2), Linear(2, 2)) : Sequential(Linear(4, 2));
      },
      "differs on rank 2: got 1.weight Float [2, 2], expected no further line");
  check_difference_reported(
      [](std::int64_t rank) {
        Sequential model{Linear(4, 2)};
        if (rank == 1) model->to(at::kDouble);
        return model;
      },
      "got 0.weight Double [2, 4]");
}

TEST_CASE("distributed: windows are weighted by the items of all processes") {
  // Micro-batches have different numbers of items. Two have no items, so their means are 0 / 0.
  const std::vector<std::vector<std::int64_t>> items = {{3, 1, 4, 2, 5},
                                                        {2, 0, 1, 6, 0}};  // by process
  const auto start_of = [&](std::size_t rank, std::size_t batch) {
    std::int64_t at = 0;
    for (std::size_t r = 0; r < items.size(); ++r) {
      for (std::size_t b = 0; b < items[r].size(); ++b) {
        if (r == rank && b == batch) return at;
        at += items[r][b];
      }
    }
    return at;
  };
  const at::Tensor rows = rows_of(24);
  for (const std::int64_t window : {1, 2, 5}) {
    CAPTURE(window);
    // The reference is the mean over all rows of a window, in one process.
    Sequential alone = small_model();
    torch::optim::SGD reference(alone->parameters(), 0.1);
    for (std::size_t first = 0; first < 5; first += static_cast<std::size_t>(window)) {
      std::vector<at::Tensor> parts;
      for (std::size_t rank = 0; rank < 2; ++rank) {
        for (std::size_t batch = first;
             batch < std::min<std::size_t>(5, first + static_cast<std::size_t>(window)); ++batch)
          parts.push_back(rows.narrow(0, start_of(rank, batch), items[rank][batch]));
      }
      reference.zero_grad();
      loss_of(alone->forward(at::cat(parts))).backward();
      reference.step();
    }
    const std::vector<at::Tensor> expected = copies(alone->parameters());
    debug_launcher([&] {
      Accelerator accelerator({.gradient_accumulation_steps = window});
      const auto rank = static_cast<std::size_t>(accelerator.group().rank());
      Sequential net = small_model();
      torch::optim::SGD sgd(net->parameters(), 0.1);
      std::vector<at::Tensor> batches;
      for (std::size_t batch = 0; batch < 5; ++batch) {
        for (std::size_t each = 0; each < 2; ++each)  // two processes read every batch in turn
          batches.push_back(rows.narrow(0, start_of(each, batch), items[each][batch]));
      }
      auto [model, optimizer, loader] = accelerator.prepare(net, sgd, batches);
      std::size_t batch = 0;
      for (auto& own : loader) {
        auto guard = accelerator.accumulate(model);
        require(own.size(0) == items[rank][batch], "the micro-batch belongs to another process");
        accelerator.backward(loss_of(model(own)), static_cast<double>(items[rank][batch++]));
        optimizer.step();
        optimizer.zero_grad();
      }
      require_close(net->parameters(), expected, str("windows of ", window));
    });
  }
}

TEST_CASE("distributed: losses of one micro-batch, and equal micro-batches, give the mean") {
  const at::Tensor rows = rows_of(8);
  Sequential alone = small_model();
  loss_of(alone->forward(rows)).backward();
  (alone->forward(rows).abs().mean() * 0.3).backward();
  const std::vector<at::Tensor> parameters = alone->parameters();
  std::vector<at::Tensor> expected;
  for (const at::Tensor& parameter : parameters) expected.push_back(parameter.grad().clone());
  debug_launcher([&] {
    Accelerator accelerator({.gradient_accumulation_steps = 2});
    Sequential net = small_model();
    auto [model] = accelerator.prepare(net);
    for (int batch = 0; batch < 2; ++batch) {
      auto guard = accelerator.accumulate(model);
      const at::Tensor own = rows.narrow(0, accelerator.group().rank() * 4 + batch * 2, 2);
      accelerator.backward(loss_of(model(own)));
      accelerator.backward(model(own).abs().mean() * 0.3);
    }
    std::vector<at::Tensor> got;
    for (const at::Tensor& parameter : net->parameters()) got.push_back(parameter.grad());
    require_close(got, expected, "gradients");
  });
}

TEST_CASE("distributed: two models have separate windows") {
  debug_launcher([] {
    Accelerator accelerator({.gradient_accumulation_steps = 2});
    const Group& group = accelerator.group();
    Sequential raw_generator = small_model(), raw_critic{Linear(1, 1)};
    auto [generator, critic] = accelerator.prepare(raw_generator, raw_critic);
    const at::Tensor own = rows_of(8).narrow(0, group.rank() * 4, 4);
    const auto is_same_on_all_ranks = [&](const at::Tensor& gradient) {
      const at::Tensor all = group.gather(gradient.flatten().unsqueeze(0));
      return at::allclose(all, all[0].unsqueeze(0).expand_as(all));
    };
    for (int batch = 0; batch < 2; ++batch) {
      auto guard = accelerator.accumulate(generator);
      accelerator.backward(critic(generator(own)).mean());
      require(accelerator.sync_gradients() == (batch == 1),
              "the generator's window has closed too early or too late");
    }
    require(is_same_on_all_ranks(raw_generator->parameters()[0].grad()),
            "the generator's gradients differ between processes");
    require(!raw_critic->parameters()[0].grad().defined(),
            "the generator's pass gave the critic a gradient");
    for (int batch = 0; batch < 2; ++batch) {
      auto guard = accelerator.accumulate(critic);
      accelerator.backward(critic(generator(own).detach()).pow(2).mean());
    }
    require(is_same_on_all_ranks(raw_critic->parameters()[0].grad()),
            "the critic's gradients differ between processes");
  });
}

// Each of c10d's reducers would send its buckets in the order of its process's graph, and the
// process without items has a different graph.
TEST_CASE("distributed: a loss through two models works, also in a process without items") {
  for (const bool first_is_nearest : {true, false}) {
    debug_launcher(
        [=] {
          torch::manual_seed(3);
          // The models have equal sizes, so that a mix-up would not fail by itself.
          Linear near(6, 6), far(6, 6);
          Accelerator accelerator({.cpu = true});
          auto [one, two] =
              first_is_nearest ? accelerator.prepare(near, far) : accelerator.prepare(far, near);
          auto &head = first_is_nearest ? one : two, &body = first_is_nearest ? two : one;
          const at::Tensor rows = rows_of(4);
          accelerator.backward(loss_of(head(body(rows))), accelerator.is_main_process() ? 4 : 0);
          torch::manual_seed(3);
          Linear near_alone(6, 6), far_alone(6, 6);
          loss_of(near_alone(far_alone(rows))).backward();
          require_close(gradients_of(*near), gradients_of(*near_alone),
                        "the gradients of the nearer model");
          require_close(gradients_of(*far), gradients_of(*far_alone),
                        "the gradients of the farther model");
        },
        2);
  }
}

TEST_CASE("distributed: the error names which of two models has unused parameters") {
  for (const bool last_leaves_out : {true, false}) {
    debug_launcher(
        [=] {
          struct TwoLayers : torch::nn::Module {
            Linear used = register_module("used", Linear(6, 6));
            Linear unused = register_module("unused", Linear(6, 6));
            at::Tensor forward(const at::Tensor& x) { return used(x); }
          };
          Accelerator accelerator({.cpu = true});
          const auto two = std::make_shared<TwoLayers>();
          Linear one(6, 6);
          const auto code = code_of([&] {
            if (last_leaves_out) {
              auto [first, last] = accelerator.prepare(one, two);
              accelerator.backward(loss_of(last(first(rows_of(4)))));
            } else {
              auto [first, last] = accelerator.prepare(two, one);
              accelerator.backward(loss_of(last(first(rows_of(4)))));
            }
          });
          require(code == "prepare.unused-parameters", "got " + code);
        },
        2);
  }
}

TEST_CASE("distributed: a parameter that no process uses has no gradient, also with no items") {
  debug_launcher(
      [] {
        Accelerator accelerator({.cpu = true, .ddp = {.find_unused_parameters = true}});
        struct Net : torch::nn::Module {
          Linear used = register_module("used", Linear(6, 1));
          Linear idle = register_module("idle", Linear(6, 1));
          at::Tensor forward(const at::Tensor& x) { return used(x); }
        };
        const auto net = std::make_shared<Net>();
        auto [model] = accelerator.prepare(net);
        accelerator.backward(loss_of(model(rows_of(4))), accelerator.is_main_process() ? 4 : 0);
        require(net->used->weight.grad().defined(), "the used layer has no gradient");
        require(!net->idle->weight.grad().defined(), "the idle layer has a gradient");
      },
      2);
}

TEST_CASE("distributed: no_sync keeps gradients local, and the next exchange includes them") {
  debug_launcher([] {
    Accelerator accelerator;
    const Group& group = accelerator.group();
    Sequential net = small_model();
    auto [model] = accelerator.prepare(net);
    const at::Tensor own = rows_of(4).narrow(0, group.rank() * 2, 2);
    const at::Tensor first = net->parameters()[0];
    const at::Tensor& gradient = first.mutable_grad();
    {
      auto guard = accelerator.no_sync(model);
      accelerator.backward(loss_of(model(own)));
    }
    const at::Tensor here = gradient.clone();
    require(!at::allclose(here, group.broadcast(here, 1)) || group.rank() == 1,
            "the gradients were exchanged");
    accelerator.backward(loss_of(model(own)));
    require(at::allclose(gradient, group.reduce(here * 2, Reduction::mean)),
            "the exchange does not include both passes");
  });
}

TEST_CASE("distributed: parameters without a gradient are named, or allowed") {
  struct TwoLayers : torch::nn::Module {
    Linear used{register_module("used", Linear(6, 1))},
        unused{register_module("unused", Linear(6, 1))};
    at::Tensor forward(const at::Tensor& x) { return used->forward(x); }
  };
  debug_launcher([] {
    Accelerator accelerator;
    auto net = std::make_shared<TwoLayers>();
    auto [model] = accelerator.prepare(net);
    try {
      accelerator.backward(model(rows_of(2)).mean());
    } catch (const UsageError& error) {
      require(error.code() == "prepare.unused-parameters", error.code());
      require(std::string(error.what()).find("got no gradient of unused.weight, unused.bias,") !=
                  std::string::npos,
              error.what());
      return;
    }
    throw std::runtime_error("nothing was thrown");
  });
  debug_launcher([] {
    Accelerator accelerator({.ddp = {.find_unused_parameters = true}});
    auto net = std::make_shared<TwoLayers>();
    auto [model] = accelerator.prepare(net);
    for (int i = 0; i < 3; ++i) accelerator.backward(model(rows_of(2)).mean());
    require(!net->unused->weight.grad().defined(), "an unused parameter has a gradient");
  });
}

TEST_CASE("distributed: training uses the buffers of rank 0") {
  debug_launcher([] {
    Accelerator accelerator;
    Sequential net{Linear(6, 4), torch::nn::BatchNorm1d(4)};
    auto [model] = accelerator.prepare(net);
    const at::Tensor own = rows_of(16).narrow(0, accelerator.group().rank() * 8, 8);
    for (int i = 0; i < 3; ++i) accelerator.backward(model(own).pow(2).mean());
    model(own);  // before this pass, all ranks get the buffers of rank 0
    std::vector<at::Tensor> before = copies(net->buffers());
    net->eval();
    require(at::equal(net->buffers()[0], before[0]), "evaluation changed the buffers");
    net->train();
    const at::Tensor mean = net->buffers()[0].clone();
    const torch::nn::Module& module = *net;
    equalize_weights(*net, accelerator.group());
    require(accelerator.group().rank() == 1 || at::equal(mean, module.buffers()[0]),
            "the buffers of rank 0 have changed");
  });
}

TEST_CASE("distributed: data that cannot be divided is refused") {
  debug_launcher([] {
    Accelerator accelerator({.dataloader_config = {.split_batches = true}});
    auto odd = make_loader(Numbers{9}, {.batch_size = 3});
    require(code_of([&] { accelerator.prepare(odd); }) == "data.sharding",
            "a batch of three rows for two processes is not refused");
    Accelerator plain;
    auto twice = make_loader(Numbers{9}, {.batch_size = 3});
    plain.prepare(twice);
    require(code_of([&] { plain.prepare(twice); }) == "data.sharding",
            "a loader that is prepared twice is not refused");
    auto small = make_loader(Numbers{3}, {.batch_size = 2, .drop_last = true});
    require(code_of([&] { plain.prepare(small); }) == "data.option",
            "a loader without a full batch is not refused");
  });
}

TEST_CASE("distributed: the Accelerator uses the precision set by hasten launch") {
  setenv("ACCELERATE_MIXED_PRECISION", "bf16", 1);
  CHECK(Accelerator({.cpu = true}).mixed_precision() == Precision::bf16);
  CHECK(Accelerator({.mixed_precision = Precision::no, .cpu = true}).mixed_precision() ==
        Precision::no);
  setenv("ACCELERATE_MIXED_PRECISION", "fp8", 1);
  CHECK(code_of([] { Accelerator({.cpu = true}); }) == "prepare.precision");
  unsetenv("ACCELERATE_MIXED_PRECISION");
}

}  // namespace prepare_distributed_training_test
