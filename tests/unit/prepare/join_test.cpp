// Processes that run out of data before others. The results equal plain LibTorch on the rows of
// each step, and all processes have equal weights afterwards.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <functional>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/data/loader.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/code_of.h"
#include "unit/prepare/distributed_fixtures.h"

namespace prepare_join_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using namespace hasten::distributed_fixtures;

namespace {

using Batches = std::vector<at::Tensor>;

// Batches of 1 to 4 rows, different in each process.
std::vector<Batches> batches_of(const std::vector<int>& counts) {
  std::vector<Batches> all;
  const at::Tensor rows = rows_of(200);
  std::int64_t at = 0;
  for (const int count : counts) {
    Batches own;
    for (int i = 0; i < count; ++i) {
      const std::int64_t size = 1 + (at * 5 + i) % 4;
      own.push_back(rows.narrow(0, at, size));
      at += size;
    }
    all.push_back(own);
  }
  return all;
}

// Returns the batches of each exchange in a scope: the k-th window of every process that has one.
std::vector<Batches> exchanges_of(const std::vector<Batches>& batches, std::size_t window) {
  std::vector<Batches> exchanges;
  for (const Batches& own : batches) {
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (exchanges.size() <= i / window) exchanges.emplace_back();
      exchanges[i / window].push_back(own[i]);
    }
  }
  return exchanges;
}

torch::optim::AdamWOptions adamw() { return torch::optim::AdamWOptions(0.05).weight_decay(0.1); }

constexpr unsigned kDecaySteps = 2;

// Trains with plain LibTorch in one process: first the uneven steps, and then two more steps with
// all rows of `after`.
std::vector<at::Tensor> single_process_weights(const std::vector<Batches>& exchanges,
                                               const Batches& after, bool by_items) {
  Sequential model = small_model();
  torch::optim::AdamW optimizer(model->parameters(), adamw());
  torch::optim::StepLR scheduler(optimizer, kDecaySteps, 0.5);
  const auto step = [&](const Batches& parts) {
    optimizer.zero_grad();
    at::Tensor loss;
    if (by_items) {
      loss = loss_of(model->forward(at::cat(parts)));
    } else {
      loss = torch::zeros({});
      for (const at::Tensor& part : parts) loss = loss + loss_of(model->forward(part));
      loss = loss / static_cast<double>(parts.size());
    }
    loss.backward();
    optimizer.step();
    scheduler.step();
  };
  for (const Batches& parts : exchanges) step(parts);
  for (int i = 0; i < 2; ++i) step(after);
  return copies(model->parameters());
}

void require_equal_on_all_ranks(const std::vector<at::Tensor>& tensors, const Group& group) {
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor all = group.gather(tensor.detach().flatten().unsqueeze(0));
    require(at::equal(all, all[0].unsqueeze(0).expand_as(all)), "processes have different bits");
  }
}

struct Case {
  std::vector<int> counts;
  std::int64_t window = 1;
  bool by_items = true;
  bool zero_first = true;  // zero_grad runs before backward and not after the step
  DistributedDataParallelKwargs ddp = {};
  bool early = false;  // the first micro-batch of a window is exchanged too
};

void check_joined(const Case& test_case) {
  CAPTURE(test_case.window);
  CAPTURE(test_case.counts.size());
  const std::vector<Batches> batches = batches_of(test_case.counts);
  const at::Tensor last =
      rows_of(300).narrow(0, 200, 2 * static_cast<int>(test_case.counts.size()));
  const auto parts = last.chunk(static_cast<std::int64_t>(test_case.counts.size()));
  const std::vector<at::Tensor> expected = single_process_weights(
      exchanges_of(batches, static_cast<std::size_t>(test_case.window)), parts, test_case.by_items);
  debug_launcher(
      [&] {
        Accelerator accelerator(
            {.gradient_accumulation_steps = test_case.window, .ddp = test_case.ddp});
        const auto rank = static_cast<std::size_t>(accelerator.group().rank());
        Sequential net = small_model();
        torch::optim::AdamW raw(net->parameters(), adamw());
        auto [model, optimizer] = accelerator.prepare(net, raw);
        PreparedScheduler scheduler =
            std::get<0>(accelerator.prepare(torch::optim::StepLR(raw, kDecaySteps, 0.5)));
        const auto step = [&](const at::Tensor& batch) {
          if (test_case.zero_first) optimizer.zero_grad();
          const at::Tensor loss = loss_of(model(batch));
          const auto backward = [&] {
            test_case.by_items ? accelerator.backward(loss, static_cast<double>(batch.size(0)))
                               : accelerator.backward(loss);
          };
          if (test_case.early && !accelerator.sync_gradients()) {
            const auto now = accelerator.trigger_sync_in_backward(model);
            backward();
          } else {
            backward();
          }
          optimizer.step();
          scheduler.step();
          if (!test_case.zero_first) optimizer.zero_grad();
        };
        {
          auto scope = accelerator.join_uneven_inputs(model);
          for (const at::Tensor& batch : batches[rank]) {
            auto guard = accelerator.accumulate(model);
            step(batch);
          }
        }
        require_equal_on_all_ranks(net->parameters(), accelerator.group());
        for (int i = 0; i < 2; ++i) step(parts[rank]);
        require_close(net->parameters(), expected, str("windows of ", test_case.window));
        require_equal_on_all_ranks(net->parameters(), accelerator.group());
      },
      static_cast<std::int64_t>(test_case.counts.size()));
}

}  // namespace

TEST_CASE("join: processes with unequal numbers of batches train as LibTorch does") {
  check_joined({.counts = {5, 3}});
  check_joined({.counts = {1, 4}});
  check_joined({.counts = {2, 5, 3}});
  check_joined({.counts = {0, 2, 4}});
  check_joined({.counts = {3, 3}});
  check_joined({.counts = {4, 2, 3}, .by_items = false});
  check_joined({.counts = {2, 4}, .zero_first = false});
}

TEST_CASE("join: a window that is open at the end of the data joins the next exchange") {
  check_joined({.counts = {4, 3}, .window = 2});
  check_joined({.counts = {3, 6}, .window = 2, .by_items = false});
  check_joined({.counts = {6, 1, 3}, .window = 2});
  check_joined({.counts = {2, 6, 5}, .window = 3, .zero_first = false});
}

TEST_CASE("join: an exchange before its window's end counts, also after some data has ended") {
  for (const bool zero_first : {true, false}) {
    check_joined({.counts = {2, 4}, .window = 2, .zero_first = zero_first, .early = true});
    check_joined({.counts = {4, 3}, .window = 2, .zero_first = zero_first, .early = true});
    check_joined({.counts = {6, 2, 5},
                  .window = 2,
                  .by_items = false,
                  .zero_first = zero_first,
                  .early = true});
    check_joined({.counts = {1, 6}, .window = 3, .zero_first = zero_first, .early = true});
  }
}

TEST_CASE("join: a pass of no_sync exchanges nothing, also after some processes have finished") {
  debug_launcher(
      [] {
        Accelerator accelerator;
        Sequential net = small_model();
        torch::optim::SGD sgd(net->parameters(), 0.1);
        auto [model, optimizer] = accelerator.prepare(net, sgd);
        const at::Tensor rows = rows_of(16);
        {
          auto scope = accelerator.join_uneven_inputs(model);
          for (std::int64_t i = 0; i < (accelerator.is_main_process() ? 2 : 4); ++i) {
            const at::Tensor loss = loss_of(model(rows.narrow(0, 2 * i, 2)));
            if (i % 2 == 0) {
              const auto here = accelerator.no_sync(model);
              accelerator.backward(loss, 2);
            } else {
              accelerator.backward(loss, 2);
              optimizer.step();
              optimizer.zero_grad();
            }
          }
        }
        require_equal_on_all_ranks(net->parameters(), accelerator.group());
      },
      2);
}

TEST_CASE("join: every option of the gradient exchange gives the same weights") {
  check_joined({.counts = {4, 2}, .ddp = {.gradient_as_bucket_view = false}});
  check_joined({.counts = {2, 4}, .ddp = {.find_unused_parameters = true}});
  check_joined({.counts = {2, 4}, .ddp = {.bucket_cap_mb = 1, .static_graph = true}});
}

TEST_CASE("join: buffers come from a process that has data") {
  debug_launcher(
      [] {
        Accelerator accelerator;
        const std::int64_t rank = accelerator.group().rank();
        Sequential net{torch::nn::Linear(6, 4), torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 1)};
        auto [model] = accelerator.prepare(net);
        const at::Tensor rows = rows_of(64);
        {
          auto scope = accelerator.join_uneven_inputs(model);
          for (std::int64_t i = 0; i < 1 + 2 * rank; ++i)
            accelerator.backward(loss_of(model(rows.narrow(0, 8 * (i + rank), 8))));
        }
        for (const at::Tensor& buffer : net->buffers())
          require_equal_on_all_ranks({buffer.to(at::kDouble)}, accelerator.group());
        require(net->named_buffers()["1.num_batches_tracked"].item<std::int64_t>() == 5,
                "as many batches as the process with most had");
      },
      3);
}

TEST_CASE("join: a loader with an incomplete last step trains correctly under accumulation") {
  // In the last step, the processes have two rows and one row, and the third process has none.
  const at::Tensor rows = rows_of(11);
  for (const std::int64_t window : {1, 2, 3}) {
    CAPTURE(window);
    for (const std::int64_t world : {2, 3}) {
      const std::int64_t count = world == 3 ? 9 : 11;
      Sequential plain = small_model();
      torch::optim::SGD reference(plain->parameters(), 0.1);
      for (std::int64_t at = 0; at < count; at += 2 * world * window) {
        reference.zero_grad();
        const std::int64_t here = std::min(2 * world * window, count - at);
        loss_of(plain->forward(rows.narrow(0, at, here))).backward();
        reference.step();
      }
      const std::vector<at::Tensor> expected = copies(plain->parameters());
      debug_launcher(
          [&] {
            Accelerator accelerator({.gradient_accumulation_steps = window,
                                     .dataloader_config = {.even_batches = false}});
            Sequential net = small_model();
            torch::optim::SGD sgd(net->parameters(), 0.1);
            auto raw = make_loader(Numbers{count}, {.batch_size = 2});
            auto [model, optimizer, loader] = accelerator.prepare(net, sgd, raw);
            {
              auto scope = accelerator.join_uneven_inputs(model);
              for (auto& batch : loader) {
                auto guard = accelerator.accumulate(model);
                const at::Tensor own = rows.index_select(0, batch.select(1, 0));
                accelerator.backward(loss_of(model(own)), static_cast<double>(own.size(0)));
                optimizer.step();
                optimizer.zero_grad();
              }
            }
            require_close(net->parameters(), expected, str(world, " processes"));
          },
          world);
    }
  }
}

TEST_CASE("join: two models with separate passes and several losses train correctly") {
  const std::vector<Batches> batches = batches_of({4, 2});
  Sequential one = small_model(), two = small_model();
  torch::optim::SGD first(one->parameters(), 0.1), second(two->parameters(), 0.1);
  for (const Batches& parts : exchanges_of(batches, 1)) {
    const at::Tensor rows = at::cat(parts);
    first.zero_grad();
    loss_of(one->forward(rows)).backward();
    (one->forward(rows).abs().mean() * 0.3).backward();
    first.step();
    second.zero_grad();
    two->forward(rows).abs().mean().backward();
    second.step();
  }
  const std::vector<at::Tensor> expected = copies(one->parameters()),
                                also = copies(two->parameters());
  debug_launcher([&] {
    Accelerator accelerator;
    Sequential a = small_model(), b = small_model();
    torch::optim::SGD sgd_a(a->parameters(), 0.1), sgd_b(b->parameters(), 0.1);
    auto [model_a, model_b, optimizer_a, optimizer_b] = accelerator.prepare(a, b, sgd_a, sgd_b);
    {
      auto scope = accelerator.join_uneven_inputs(model_a, model_b);
      for (const at::Tensor& rows : batches[static_cast<std::size_t>(accelerator.group().rank())]) {
        const auto items = static_cast<double>(rows.size(0));
        {
          auto guard = accelerator.accumulate(model_a);
          accelerator.backward(loss_of(model_a(rows)), items);
          accelerator.backward(model_a(rows).abs().mean() * 0.3, items);
          optimizer_a.step();
          optimizer_a.zero_grad();
        }
        auto guard = accelerator.accumulate(model_b);
        accelerator.backward(model_b(rows).abs().mean(), items);
        optimizer_b.step();
        optimizer_b.zero_grad();
      }
    }
    require_close(a->parameters(), expected, "the first model");
    require_close(b->parameters(), also, "the second model");
  });
}

TEST_CASE("join: a loop that cannot be joined throws in every process") {
  const auto code_in_scope = [](const std::function<void(Accelerator&, std::int64_t)>& loop) {
    return [loop](Accelerator& accelerator) {
      return code_of([&] {
        auto scope = accelerator.join_uneven_inputs();
        loop(accelerator, accelerator.group().rank());
      });
    };
  };
  debug_launcher([&] {
    Accelerator accelerator;
    require(code_in_scope([](Accelerator& a, std::int64_t rank) {
              for (std::int64_t i = 0; i <= rank; ++i) a.reduce(torch::ones({2}));
            })(accelerator) == "prepare.join-call",
            "a reduction that one process does not take part in");
    require(code_in_scope([](Accelerator& a, std::int64_t rank) {
              rank == 0 ? static_cast<void>(a.reduce(torch::ones({2})))
                        : static_cast<void>(a.gather_for_metrics(torch::ones({2})));
            })(accelerator) == "prepare.join-order",
            "different things at once");
    require(code_in_scope([](Accelerator& a, std::int64_t) {
              auto inner = a.join_uneven_inputs();
            })(accelerator) == "prepare.nested-join",
            "a scope in a scope");
    Sequential net = small_model();
    auto [model] = accelerator.prepare(net);
    require(code_of([&] {
              auto scope = accelerator.join_uneven_inputs();
              accelerator.backward(loss_of(model(rows_of(2))));
            }) == "prepare.join-model",
            "a model that was not named");
    {
      auto scope = accelerator.join_uneven_inputs(model);
      require(accelerator.reduce(torch::ones({1})).item<double>() == 2,
              "while all have data, the sum is wrong");
    }
    accelerator.backward(loss_of(model(rows_of(2))));
    require(accelerator.reduce(torch::ones({1})).item<double>() == 2,
            "after the scope, the sum is wrong");
  });
}

TEST_CASE("join: in one process the scope changes nothing") {
  Accelerator accelerator({.cpu = true});
  Sequential net = small_model();
  auto [model] = accelerator.prepare(net);
  auto scope = accelerator.join_uneven_inputs({.even_batches = false}, model);
  accelerator.backward(loss_of(model(rows_of(2))));
  CHECK(accelerator.reduce(torch::ones({1})).item<double>() == 1);
  CHECK(accelerator.gather_for_metrics(torch::ones({3})).size(0) == 3);
}

}  // namespace prepare_join_test
