// Elastic ranks: one, two and four processes that share four virtual ranks compute the same bits,
// and continue from each other's checkpoints.
#include <ATen/Parallel.h>
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/data/column_dataset.h"
#include "hasten/data/loader.h"
#include "hasten/formats/safetensors.h"
#include "hasten/optim/adamw.h"
#include "hasten/optim/scheduler.h"
#include "hasten/process/notebook_launcher.h"
#include "prepare/tree_sum.h"
#include "unit/code_of.h"
#include "unit/prepare/multiprocess_checks.h"

namespace prepare_elastic_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
namespace fs = std::filesystem;
namespace optim = torch::optim;

namespace {

constexpr std::int64_t kVirtual = 4, kRows = 53, kWidth = 6, kSteps = 11;

// A network with dropout, a table with sparse gradients, running statistics, and a layer that some
// batches do not use.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    torch::manual_seed(5);
    table = register_module("table",
                            torch::nn::Embedding(torch::nn::EmbeddingOptions(7, 4).sparse(true)));
    first = register_module("first", torch::nn::Linear(kWidth + 4, 16));
    norm = register_module("norm", torch::nn::BatchNorm1d(16));
    rare = register_module("rare", torch::nn::Linear(16, 1));
    second = register_module("second", torch::nn::Linear(16, 1));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& word) {
    const at::Tensor hidden =
        torch::dropout(norm(first(at::cat({x, table(word)}, 1))).relu(), 0.3, is_training());
    const bool is_rare = word[0].item<std::int64_t>() == 3;
    return is_rare ? second(hidden) + rare(hidden) : second(hidden);
  }
  torch::nn::Embedding table{nullptr};
  torch::nn::Linear first{nullptr}, second{nullptr}, rare{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Net);

ColumnDataset own_rows() {
  torch::manual_seed(6);
  const at::Tensor x = at::randn({kRows, kWidth});
  return ColumnDataset(
      {{"x", x}, {"y", x.sum(1, true).sin()}, {"word", at::randint(0, 7, {kRows})}});
}

struct Loop {
  std::int64_t accumulation = 3;
  std::int64_t workers = 0;
  bool weights_by_items = true;
  bool shared_memory = true;
  std::int64_t threads = 1;
  Precision precision = Precision::no;
};

AcceleratorOptions options_of(const Loop& loop, const fs::path& project) {
  return {.mixed_precision = loop.precision,
          .gradient_accumulation_steps = loop.accumulation,
          .cpu = true,
          .process_group = {.shared_memory = loop.shared_memory},
          .project_config = {.project_dir = project, .automatic_checkpoint_naming = true},
          .elastic_ranks = kVirtual,
          .elastic_threads = loop.threads};
}

double evaluate(Accelerator& accelerator, Net& net, PreparedLoader<Loader<TensorDict>>& loader) {
  const torch::NoGradGuard no_grad;
  net->eval();
  std::vector<at::Tensor> all;
  for (auto& batch : loader)
    all.push_back(accelerator.gather_for_metrics(
        (net->forward(batch.at("x"), batch.at("word")) - batch.at("y")).abs()));
  net->train();
  return at::cat(all).sum().item<double>();
}

// Continues a saved run, if there is one. Trains to `stop` and saves there, or trains to the end.
// Returns everything by which two runs are compared.
TensorDict train(const Loop& loop, const fs::path& project, std::int64_t stop) {
  Accelerator accelerator(options_of(loop, project));
  Net net;
  optim::Adagrad adagrad(net->parameters(), optim::AdagradOptions(0.05));
  auto cosine = get_scheduler("cosine", adagrad, {.num_warmup_steps = 2, .num_training_steps = 20});
  LoaderOptions of_training{.batch_size = 2, .shuffle = true, .num_workers = loop.workers};
  of_training.seed = 9;
  auto raw = make_loader(own_rows(), of_training);
  // Larger batches would give different results. Several processes fill up the last batch, which
  // one process does not do, and the rows of a larger product may be rounded differently.
  auto raw_evaluation = make_loader(own_rows(), {.batch_size = 1});
  auto [model, optimizer, scheduler, loader, evaluation] = accelerator.prepare(
      net, adagrad, std::shared_ptr<optim::LRScheduler>(std::move(cosine)), raw, raw_evaluation);
  set_seed(7, /*device_specific=*/true);
  std::vector<double> losses, norms;
  accelerator.load_state();
  while (optimizer.steps() < stop) {
    for (auto& batch : loader) {
      const auto guard = accelerator.accumulate(model);
      const at::Tensor out = model(batch.at("x"), batch.at("word")).to(at::kFloat);
      const at::Tensor loss = torch::mse_loss(out, batch.at("y"));
      // Some micro-batches count nothing, and some have no backward pass.
      const double items = std::max(0.0, std::floor(batch.at("word").sum().item<double>()) - 3);
      if (!loop.weights_by_items) {
        accelerator.backward(loss);
      } else if (items != 2) {
        accelerator.backward(loss, items);
      }
      const auto norm = static_cast<double>(accelerator.clip_grad_norm_(net->parameters(), 0.5));
      const std::int64_t before = optimizer.steps();
      optimizer.step();
      scheduler.step();
      optimizer.zero_grad();
      if (optimizer.steps() == before) continue;
      losses.push_back(accelerator.elastic_loss());
      norms.push_back(norm);
      if (optimizer.steps() % 3 == 0) losses.push_back(evaluate(accelerator, net, evaluation));
      if (optimizer.steps() == stop) break;
    }
  }
  if (stop < kSteps) accelerator.save_state();
  TensorDict result = {
      {"losses", at::tensor(losses, at::kDouble)},
      {"norms", at::tensor(norms, at::kDouble)},
      {"rate", at::scalar_tensor(adagrad.param_groups()[0].options().get_lr(), at::kDouble)}};
  for (const auto& item : net->named_parameters()) result[item.key()] = item.value().detach();
  for (const auto& item : net->named_buffers()) result[item.key()] = item.value();
  for (const auto& [name, tensor] : result) {
    for (const at::Tensor& of_rank : accelerator.gather(tensor.unsqueeze(0)).unbind())
      require(at::equal(of_rank, tensor), name + " differs between processes");
  }
  return result;
}

// Trains in `processes` processes, and returns the result of the main process.
TensorDict train_in(std::int64_t processes, const Loop& loop, const fs::path& project,
                    std::int64_t stop = kSteps) {
  const int threads = at::get_num_threads();
  const fs::path file = project / "result.safetensors";
  notebook_launcher(
      [&] {
        const TensorDict result = train(loop, project, stop);
        const char* const rank = std::getenv("RANK");
        if (rank == nullptr || std::string(rank) == "0") save_safetensors(file, result);
      },
      {.num_processes = processes});
  at::set_num_threads(threads);
  TensorDict result;
  for (const auto& [name, tensor] : load_safetensors(file)) result[name] = tensor.clone();
  return result;
}

TensorDict train_in(std::int64_t processes, const Loop& loop) {
  const TemporaryDirectory project;
  return train_in(processes, loop, project.path());
}

std::string difference(const TensorDict& a, const TensorDict& b) {
  for (const auto& [name, tensor] : a) {
    if (!at::equal(tensor, b.at(name))) return name;
  }
  return "";
}

}  // namespace

TEST_CASE("tree sum: neighbours are added first, and log2(n) + 1 terms are in memory") {
  const auto term = [](double value) { return TensorList{at::full({2}, value, at::kFloat)}; };
  TreeSum sum;
  std::size_t most = 0;
  std::vector<double> values;
  for (int i = 0; i < 8; ++i) {
    values.push_back(i == 0 ? 1e8 : std::pow(3.0, i));
    sum.add(term(values.back()));
    most = std::max(most, sum.node_count());
  }
  const auto f = [&](int i) { return static_cast<float>(values[static_cast<std::size_t>(i)]); };
  const float expected = ((f(0) + f(1)) + (f(2) + f(3))) + ((f(4) + f(5)) + (f(6) + f(7)));
  CHECK(sum.take()[0][0].item<float>() == expected);
  CHECK(most <= 3);  // not counting the term that is being added
  CHECK(sum.node_count() == 0);
  CHECK(tree_sum({1e17, 1, 1, 1}) == 1e17 + 2);
}

TEST_CASE("tree sum: a missing tensor is a zero, wherever it is missing") {
  const at::Tensor minus = at::full({1}, -0.0f), none;
  for (const auto& terms :
       {std::vector{minus, none, none, none}, std::vector{none, none, minus, none},
        std::vector{none, minus, none, none}}) {
    TreeSum sum;
    for (const at::Tensor& each : terms) sum.add({each.defined() ? each.clone() : each});
    CHECK_FALSE(std::signbit(sum.take()[0].item<float>()));
  }
  TreeSum sum;
  sum.add({none});
  sum.add({none});
  CHECK_FALSE(sum.take()[0].defined());
}

TEST_CASE("elastic ranks: one, two and four processes compute the same bits") {
  for (const Loop& loop : {Loop{}, Loop{.accumulation = 1, .workers = 2},
                           Loop{.accumulation = 2, .weights_by_items = false, .threads = 2},
                           Loop{.precision = Precision::bf16}}) {
    CAPTURE(loop.accumulation);
    const TensorDict four = train_in(4, loop);
    CHECK(four.at("losses").numel() == kSteps + kSteps / 3);
    CHECK(difference(train_in(1, loop), four) == "");
    CHECK(difference(train_in(2, loop), four) == "");
  }
}

TEST_CASE("elastic ranks: messages between machines add up along the same tree") {
  const TensorDict alone = train_in(1, {.shared_memory = false});
  CHECK(difference(train_in(4, {.shared_memory = false}), alone) == "");
  CHECK(difference(train_in(2, {.shared_memory = false}), alone) == "");
}

TEST_CASE("elastic ranks: another number of processes continues a run bit for bit") {
  const auto without_history = [](TensorDict result) {
    result.erase("losses");
    result.erase("norms");
    return result;
  };
  const TensorDict whole = without_history(train_in(2, {.workers = 1}));
  const TemporaryDirectory project;
  train_in(4, {.workers = 1}, project.path(), 2);
  train_in(2, {}, project.path(), 4);  // in the middle of the second epoch
  train_in(1, {.workers = 1}, project.path(), 7);
  CHECK(difference(without_history(train_in(4, {}, project.path())), whole) == "");
}

TEST_CASE("elastic ranks: the batches of the virtual ranks are those of as many processes") {
  const TemporaryDirectory folder;
  const auto write_batches = [&](std::int64_t processes, std::int64_t elastic) {
    notebook_launcher(
        [&] {
          Accelerator accelerator(
              {.gradient_accumulation_steps = 2, .cpu = true, .elastic_ranks = elastic});
          LoaderOptions options{.batch_size = 3, .shuffle = true};
          auto raw = make_loader(own_rows(), options);
          auto [loader] = accelerator.prepare(raw);
          require(raw.size() == 5 * (elastic > 0 ? elastic / processes : 1), "size");
          std::map<std::int64_t, std::vector<at::Tensor>> of_rank;
          for (const auto& [batch, info] : with_info(loader)) {
            const std::int64_t rank =
                elastic > 0 ? info.elastic->virtual_rank : accelerator.process().process_index;
            of_rank[rank].push_back(batch.at("x").clone());
          }
          require(raw.epoch() == 1, "the epoch ends");
          for (const auto& [rank, batches] : of_rank)
            save_safetensors(folder.path() / str(elastic, '_', processes, '_', rank),
                             {{"rows", at::stack(batches)}});
        },
        {.num_processes = processes});
  };
  const int threads = at::get_num_threads();
  write_batches(4, 0);
  for (const std::int64_t processes : {1, 2}) {
    write_batches(processes, 4);
    for (std::int64_t rank = 0; rank < 4; ++rank) {
      CHECK(at::equal(load_safetensors(folder.path() / str("4_", processes, '_', rank)).at("rows"),
                      load_safetensors(folder.path() / str("0_4_", rank)).at("rows")));
    }
  }
  at::set_num_threads(threads);
}

TEST_CASE("elastic ranks: options whose results depend on the processes are refused") {
  const auto code = [](AcceleratorOptions options) {
    options.cpu = true;
    if (options.elastic_ranks == 0) options.elastic_ranks = 4;
    return code_of([&] { Accelerator accelerator(options); });
  };
  const int threads = at::get_num_threads();
  CHECK(code({}) == "none");
  CHECK(code({.elastic_ranks = 3}) == "prepare.elastic");
  CHECK(code({.elastic_ranks = -4}) == "prepare.elastic");
  CHECK(code({.elastic_threads = 0}) == "prepare.elastic");
  CHECK(code({.ddp = {.comm_hook = CommunicationHook::bf16}}) == "prepare.elastic");
  CHECK(code({.ddp = {.broadcast_buffers = false}}) == "prepare.elastic");
  CHECK(code({.dataloader_config = {.split_batches = true}}) == "prepare.elastic");
  CHECK(code({.dataloader_config = {.even_batches = false}}) == "prepare.elastic");
  CHECK(code({.dataloader_config = {.dispatch_batches = true}}) == "prepare.elastic");
  {
    Accelerator accelerator({.cpu = true, .elastic_ranks = 4});
    torch::nn::Linear complex(2, 1);
    complex->to(at::kComplexFloat);
    CHECK(code_of([&] { accelerator.prepare(complex); }) == "prepare.elastic");
  }
  notebook_launcher(
      [&] { require(code({.elastic_ranks = 1}) == "prepare.elastic", "more processes"); },
      {.num_processes = 2});
  at::set_num_threads(threads);
}

TEST_CASE("elastic ranks: loops whose results depend on the processes are refused") {
  const int threads = at::get_num_threads();
  const TemporaryDirectory folder;
  Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true, .elastic_ranks = 2});
  torch::nn::Linear net(2, 1), other(2, 1);
  optim::SGD sgd(net->parameters(), optim::SGDOptions(0.1));
  auto raw = make_loader(ColumnDataset({{"x", at::ones({16, 2})}}), {.batch_size = 2});
  auto raw_evaluation = make_loader(ColumnDataset({{"x", at::ones({4, 2})}}), {.batch_size = 2});
  auto [model, other_model, optimizer, loader, evaluation] =
      accelerator.prepare(net, other, sgd, raw, raw_evaluation);
  const auto refused = [](auto&& call) { return code_of(call) == "prepare.elastic-loop"; };
  const at::Tensor x = at::ones({2, 2});
  CHECK(refused([&] { model(x); }));
  CHECK(refused([&] { accelerator.backward(net(x).mean()); }));
  CHECK(refused([&] { const auto guard = accelerator.accumulate(model); }));
  CHECK(refused([&] { const auto guard = accelerator.no_sync(model); }));
  CHECK(refused([&] { const auto guard = accelerator.trigger_sync_in_backward(model); }));
  CHECK(refused([&] { const auto guard = accelerator.join_uneven_inputs(model); }));
  CHECK(refused([&] { const LocalSGD local(accelerator, model, {}); }));
  CHECK(refused([&] { accelerator.set_gradient_accumulation_steps(3); }));
  CHECK(refused([&] { optimizer.step([&] { return net(x).mean(); }); }));
  CHECK(accelerator.gradient_accumulation_steps() == 2);
  CHECK(code_of([&] {
          Accelerator plain({.cpu = true});
          plain.elastic_loss();
        }) == "prepare.elastic-loop");
  const auto at_batch = [&](std::int64_t number, auto&& call) {
    for (auto& batch : loader) {
      if (number-- == 0) return code_of([&] { call(batch.at("x")); });
      const auto guard = accelerator.accumulate(model);
      accelerator.backward(model(batch.at("x")).mean());
    }
    return std::string("the end");
  };
  const std::string code = "prepare.elastic-loop";
  CHECK(at_batch(1, [&](const at::Tensor&) {
          const auto guard = accelerator.accumulate(other_model);
        }) == code);
  CHECK(at_batch(0, [&](const at::Tensor& rows) {
          { const auto guard = accelerator.accumulate(model); }
          const auto guard = accelerator.accumulate(model);
          model(rows);
        }) == code);
  CHECK(at_batch(2, [&](const at::Tensor& rows) {
          const auto guard = accelerator.accumulate(model);
          accelerator.backward(model(rows).mean());
          accelerator.backward(model(rows).mean());
        }) == code);
  CHECK(at_batch(2, [&](const at::Tensor&) { accelerator.save_state(folder.path() / "state"); }) ==
        "checkpoint.open-window");
  // No batch may be left out, not even the last one of a window of four.
  for (const std::int64_t left_out : {0, 1, 2, 3}) {
    CAPTURE(left_out);
    std::int64_t number = 0;
    CHECK(code_of([&] {
            for (auto& batch : loader) {
              if (number++ == left_out) continue;
              const auto guard = accelerator.accumulate(model);
              accelerator.backward(model(batch.at("x")).mean());
            }
          }) == code);
  }
  // The window of a loop that is left does not continue in the next loop.
  CHECK(at_batch(1, [&](const at::Tensor&) {}) == "none");
  CHECK(code_of([&] {
          bool is_first = true;
          for (auto& batch : loader) {
            if (std::exchange(is_first, false)) continue;
            const auto guard = accelerator.accumulate(model);
            accelerator.backward(model(batch.at("x")).mean());
          }
        }) == code);
  // Two accumulate() calls for one batch are refused, even with an evaluation between them.
  CHECK(at_batch(0, [&](const at::Tensor&) {
          { const auto guard = accelerator.accumulate(model); }
          {
            const torch::NoGradGuard no_grad;
            for (auto& batch : evaluation) static_cast<void>(batch);
          }
          const auto guard = accelerator.accumulate(model);
        }) == code);
  at::set_num_threads(static_cast<int>(threads == 1 ? 2 : 1) + 1);
  CHECK(at_batch(0, [&](const at::Tensor&) { const auto guard = accelerator.accumulate(model); }) ==
        code);
  at::set_num_threads(1);
  // A loop that was left may begin again.
  CHECK(at_batch(99, [&](const at::Tensor&) {}) == "the end");
  optimizer.step();
  accelerator.save_state(folder.path() / "state");
  const auto code_with = [&](std::int64_t ranks, std::int64_t of_threads) {
    Accelerator second({.cpu = true, .elastic_ranks = ranks, .elastic_threads = of_threads});
    torch::nn::Linear a(2, 1), b(2, 1);
    optim::SGD own(a->parameters(), optim::SGDOptions(0.1));
    auto own_raw = make_loader(ColumnDataset({{"x", at::ones({16, 2})}}), {.batch_size = 2});
    auto own_other = make_loader(ColumnDataset({{"x", at::ones({4, 2})}}), {.batch_size = 2});
    auto handles = second.prepare(a, b, own, own_raw, own_other);
    return code_of([&] { second.load_state(folder.path() / "state"); });
  };
  CHECK(code_with(2, 1) == "none");
  CHECK(code_with(4, 1) == "checkpoint.elastic");
  CHECK(code_with(0, 1) == "checkpoint.elastic");
  CHECK(code_with(2, 2) == "checkpoint.elastic");
  at::set_num_threads(threads);
}

TEST_CASE("elastic ranks: a stream is refused, and a gradient of no prepared model") {
  const int threads = at::get_num_threads();
  struct Stream {
    std::optional<TensorDict> next() { return std::nullopt; }
    void rewind(std::int64_t) {}
  };
  Accelerator accelerator({.cpu = true, .elastic_ranks = 2});
  auto stream = make_loader(Stream{}, {.batch_size = 2});
  CHECK(code_of([&] { accelerator.prepare(stream); }) == "data.sharding");
  torch::nn::Linear net(2, 1);
  at::Tensor scale = at::ones({1}).requires_grad_();
  optim::SGD sgd({net->weight, net->bias, scale}, optim::SGDOptions(0.1));
  auto raw = make_loader(ColumnDataset({{"x", at::ones({8, 2})}}), {.batch_size = 2});
  auto [model, optimizer, loader] = accelerator.prepare(net, sgd, raw);
  CHECK(code_of([&] {
          for (auto& batch : loader) {
            const auto guard = accelerator.accumulate(model);
            accelerator.backward((model(batch.at("x")) * scale).mean());
            optimizer.step();
          }
        }) == "prepare.elastic-loop");
  at::set_num_threads(threads);
}

}  // namespace prepare_elastic_test
