// A training loop with everything that save_state() saves, which stops and continues at chosen
// places.
//
//   const RunResult straight = *train({}, none.path());
//   train({}, project.path(), /*stop=*/3);                          // saves after step 3
//   CHECK(same_bits(straight, *train({}, project.path())));
#pragma once

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <filesystem>
#include <functional>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/data/column_dataset.h"
#include "hasten/data/loader.h"
#include "hasten/formats/safetensors.h"
#include "hasten/optim/adamw.h"
#include "hasten/optim/metric_scheduler.h"
#include "hasten/optim/scheduler.h"

namespace hasten::save_state_loop {

namespace fs = std::filesystem;
namespace optim = torch::optim;

inline constexpr std::int64_t kRows = 44, kWidth = 6;

// A network with dropout and with a buffer that every pass changes.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    torch::manual_seed(5);
    first = register_module("first", torch::nn::Linear(kWidth, 16));
    norm = register_module("norm", torch::nn::BatchNorm1d(16));
    second = register_module("second", torch::nn::Linear(16, 1));
  }
  at::Tensor forward(const at::Tensor& x) {
    return second(torch::dropout(norm(first(x)).relu(), 0.3, is_training()));
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Net);

inline ColumnDataset own_rows() {
  torch::manual_seed(6);
  const at::Tensor x = at::randn({kRows, kWidth});
  return ColumnDataset({{"x", x}, {"y", x.sum(1, true).sin()}});
}

// The same rows for LibTorch's loaders.
struct TorchRows : torch::data::datasets::Dataset<TorchRows> {
  torch::data::Example<> get(std::size_t row) override {
    const auto i = static_cast<std::int64_t>(row);
    return {x[i], y[i]};
  }
  torch::optional<std::size_t> size() const override { return kRows; }
  at::Tensor x = own_rows().columns().at("x"), y = own_rows().columns().at("y");
};

// A user's object: a mean over the steps.
struct Mean {
  TensorDict state_dict() const {
    return {{"mean", at::scalar_tensor(mean, at::kDouble)},
            {"steps", at::scalar_tensor(steps, at::kLong)}};
  }
  void load_state_dict(const TensorDict& state) {
    mean = state.at("mean").item<double>();
    steps = state.at("steps").item<std::int64_t>();
  }
  void add(double value) { mean += (value - mean) / static_cast<double>(++steps); }
  double mean = 0;
  std::int64_t steps = 0;
};

// Everything by which the ends of two runs are compared.
struct RunResult {
  TensorDict weights;
  double mean = 0;
  std::vector<double> rates;
  at::Tensor drawn;
};

inline bool same_bits(const RunResult& a, const RunResult& b) {
  bool same = a.weights.size() == b.weights.size() && a.mean == b.mean && a.rates == b.rates &&
              at::equal(a.drawn, b.drawn);
  for (const auto& [name, tensor] : a.weights) same = same && at::equal(tensor, b.weights.at(name));
  return same;
}

using MakeOptimizer = std::function<std::unique_ptr<optim::Optimizer>(NetImpl& net)>;
using MakeScheduler =
    std::function<std::shared_ptr<optim::LRScheduler>(optim::Optimizer& optimizer)>;

inline std::shared_ptr<optim::LRScheduler> cosine(optim::Optimizer& optimizer) {
  return get_scheduler("cosine", optimizer, {.num_warmup_steps = 2, .num_training_steps = 20});
}

// The settings that differ between the loops of the tests.
struct Loop {
  MakeOptimizer make_optimizer = [](NetImpl& net) -> std::unique_ptr<optim::Optimizer> {
    return std::make_unique<AdamW>(net.parameters(), optim::AdamWOptions(1e-2));
  };
  MakeScheduler make_scheduler = cosine;
  bool foreign_loader = false;
  std::int64_t accumulation = 2;
  std::int64_t batch_size = 4;
  std::int64_t workers = 0;
  bool stops_at_micro_batch = false;  // `stop` counts micro-batches instead of steps
  bool asynchronous = false;
};

// Step 13 is in the third epoch. Each epoch has 6 steps, and its last step has one batch.
inline constexpr std::int64_t kSteps = 13;

// Continues a saved run, if there is one. Trains up to `stop`, saves there and returns nothing, or
// trains to the end.
inline std::optional<RunResult> train(const Loop& loop, const fs::path& project,
                                      std::int64_t stop = -1) {
  Accelerator accelerator(
      {.gradient_accumulation_steps = loop.accumulation,
       .cpu = true,
       .project_config = {
           .project_dir = project, .automatic_checkpoint_naming = true, .total_limit = 2}});
  Net net;
  const auto raw_optimizer = loop.make_optimizer(*net);
  const auto raw_scheduler = loop.make_scheduler(*raw_optimizer);
  auto [model, optimizer, scheduler] = accelerator.prepare(net, *raw_optimizer, raw_scheduler);
  Mean mean;
  accelerator.register_for_checkpointing(mean);
  torch::manual_seed(7 + accelerator.process().process_index);
  const auto run = [&](auto& loader) {
    accelerator.load_state();
    while (optimizer.steps() < kSteps) {
      for (auto& batch : loader) {
        const auto guard = accelerator.accumulate(model);
        at::Tensor loss;
        if constexpr (requires { batch.data; }) {
          loss = torch::mse_loss(model(batch.data), batch.target);
        } else {
          loss = torch::mse_loss(model(batch.at("x")), batch.at("y"));
        }
        accelerator.backward(loss);
        optimizer.step();
        scheduler.step();
        optimizer.zero_grad();
        mean.add(loss.template item<double>());
        const bool in_window = !accelerator.sync_gradients();
        if (loop.stops_at_micro_batch ? mean.steps == stop
                                      : !in_window && optimizer.steps() == stop) {
          accelerator.save_state({}, {.asynchronous = loop.asynchronous});
          return false;
        }
        if (!in_window && optimizer.steps() == kSteps) break;
      }
    }
    return true;
  };
  bool ended;
  if (loop.foreign_loader) {
    auto raw = torch::data::make_data_loader(
        TorchRows().map(torch::data::transforms::Stack<>()),
        torch::data::DataLoaderOptions().batch_size(static_cast<std::size_t>(loop.batch_size)));
    auto [loader] = accelerator.prepare(*raw);
    ended = run(loader);
  } else {
    LoaderOptions options{.batch_size = loop.batch_size, .shuffle = true};
    options.seed = 9;
    options.num_workers = loop.workers;
    auto raw = make_loader(own_rows(), options);
    auto [loader] = accelerator.prepare(raw);
    ended = run(loader);
  }
  if (!ended) return std::nullopt;
  RunResult result{.weights = {}, .mean = mean.mean, .rates = {}, .drawn = at::rand({4})};
  for (const auto& item : net->named_parameters())
    result.weights[item.key()] = item.value().clone();
  for (const auto& item : net->named_buffers()) result.weights[item.key()] = item.value().clone();
  for (const auto& group : raw_optimizer->param_groups())
    result.rates.push_back(group.options().get_lr());
  return result;
}

inline std::vector<std::int64_t> differing_stops(const Loop& loop,
                                                 const std::vector<std::int64_t>& stops) {
  const TemporaryDirectory none;
  const RunResult straight = *train(loop, none.path());
  std::vector<std::int64_t> differing;
  for (const std::int64_t stop : stops) {
    const TemporaryDirectory project;
    CHECK_FALSE(train(loop, project.path(), stop));
    if (!same_bits(straight, *train(loop, project.path()))) differing.push_back(stop);
  }
  return differing;
}

using Steps = std::vector<std::int64_t>;
inline const Steps kEveryStep = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

}  // namespace hasten::save_state_loop
