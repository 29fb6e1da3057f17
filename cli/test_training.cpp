// Checks what training across the ranks of `hasten test` depends on. Compares with the results of
// one process.
#include "test_checks.h"

#include <torch/torch.h>

#include <algorithm>
#include <numeric>

#include "hasten/accelerator.h"
#include "hasten/data/loader.h"

namespace hasten::cli {
namespace {

using torch::nn::Linear;
using torch::nn::Sequential;

AcceleratorOptions on_cpu(const DataLoaderConfiguration& loaders = {}) {
  return {.cpu = true, .dataloader_config = loaders};
}

struct IndexDataset {
  std::int64_t count;
  std::int64_t size() const { return count; }
  at::Tensor get(std::int64_t row) const { return at::full({1}, row, at::kLong); }
};

std::vector<std::int64_t> make_range(std::int64_t length) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(length));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

std::vector<std::int64_t> numbers_in(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.flatten().contiguous();
  return {flat.data_ptr<std::int64_t>(), flat.data_ptr<std::int64_t>() + flat.numel()};
}

// Splits lists and tensors, and gathers the parts as texts, because their sizes differ.
Json split(RankContext& rank) {
  const Group& group = rank.require_group();
  for (const std::int64_t length : {std::int64_t{0}, std::int64_t{1}, 3 * group.size() + 1}) {
    const auto all = make_range(length);
    const auto own = split_between_processes(all, rank.process);
    const auto of_tensor = split_between_processes(at::arange(length), rank.process);
    if (numbers_in(of_tensor) != own)
      throw CheckFailed("a tensor is split differently from a list");
    std::string text;
    for (const std::int64_t number : own) text += str(number, " ");
    std::string together, expected;
    for (const std::string& part : group.gather_object(text)) together += part;
    for (const std::int64_t number : all) expected += str(number, " ");
    expect_equal(str("the parts of ", length, " entries"), together, expected);
  }
  return {};
}

Json trigger(RankContext& rank) {
  rank.require_group();
  Accelerator accelerator(on_cpu());
  const bool before = accelerator.check_trigger();
  if (accelerator.is_last_process()) accelerator.set_trigger();
  const bool seen = accelerator.check_trigger(), after = accelerator.check_trigger();
  if (before || !seen || after)
    throw CheckFailed("a flag that one rank sets is not seen exactly once by each rank");
  return {};
}

// Returns the rows that all processes read in one epoch of a loader with these options, in order.
std::vector<std::int64_t> epoch_of(Accelerator& accelerator, std::int64_t rows,
                                   const LoaderOptions& options) {
  auto raw = make_loader(IndexDataset{rows}, options);
  auto [loader] = accelerator.prepare(raw);
  std::vector<std::int64_t> seen;
  for (auto& batch : loader) {
    for (const std::int64_t row : numbers_in(accelerator.gather_for_metrics(batch)))
      seen.push_back(row);
  }
  return seen;
}

Json data(RankContext& rank) {
  const std::int64_t world = rank.require_group().size();
  Accelerator plain(on_cpu()), splitting(on_cpu({.split_batches = true})),
      dispatching(on_cpu({.dispatch_batches = true})),
      both(on_cpu({.split_batches = true, .dispatch_batches = true}));
  for (Accelerator* const accelerator : {&plain, &splitting, &dispatching, &both}) {
    const LoaderOptions in_order{.batch_size = 2 * world};
    const LoaderOptions shuffled{.batch_size = 2 * world, .shuffle = true, .seed = 5};
    if (epoch_of(*accelerator, 8 * world * world, in_order) != make_range(8 * world * world))
      throw CheckFailed("the rows are not in the dataset's order");
    auto rows = epoch_of(*accelerator, 8 * world * world, shuffled);
    const bool is_shuffled = !std::is_sorted(rows.begin(), rows.end());
    std::sort(rows.begin(), rows.end());
    if (!is_shuffled || rows != make_range(8 * world * world))
      throw CheckFailed("a shuffled pass does not return each row exactly once");
  }
  return {};
}

Json metrics(RankContext& rank) {
  const std::int64_t world = rank.require_group().size();
  Accelerator accelerator(on_cpu());
  for (std::int64_t rows = 1; rows <= 4 * world + 1; ++rows) {
    const auto seen = epoch_of(accelerator, rows, {.batch_size = 2});
    expect_equal(str("rows counted of ", rows), static_cast<std::int64_t>(seen.size()), rows);
    if (seen != make_range(rows))
      throw CheckFailed(str("some of ", rows, " rows are counted twice"));
  }
  return {};
}

constexpr int kSteps = 10;

// Returns the inputs of a regression, which are the same in every process.
at::Tensor inputs_of(std::int64_t world) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
  return at::randn({kSteps * 4 * world, 3}, generator);
}

at::Tensor loss_of(const at::Tensor& predicted, const at::Tensor& inputs) {
  return (predicted.squeeze(1) - inputs.sum(1)).pow(2).mean();
}

Sequential model_of(double weight) {
  Sequential model{Linear(3, 4), torch::nn::Tanh(), Linear(4, 1)};
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) parameter.fill_(weight);
  return model;
}

Json training(RankContext& rank) {
  const std::int64_t world = rank.require_group().size();
  const at::Tensor inputs = inputs_of(world);
  Sequential alone = model_of(0.1);
  torch::optim::SGD by_hand(alone->parameters(), 0.1);
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor whole = inputs.narrow(0, step * 4 * world, 4 * world);
    by_hand.zero_grad();
    loss_of(alone->forward(whole), whole).backward();
    by_hand.step();
  }
  Accelerator accelerator(on_cpu());
  // Only rank 0 begins with the right weights: prepare() must copy them to the others.
  Sequential net = model_of(0.1 + 0.1 * static_cast<double>(rank.process.process_index));
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor own =
        inputs.narrow(0, step * 4 * world + accelerator.process().process_index * 4, 4);
    optimizer.zero_grad();
    accelerator.backward(loss_of(model(own), own));
    optimizer.step();
  }
  double most = 0;
  for (std::size_t i = 0; i < net->parameters().size(); ++i) {
    const at::Tensor difference = net->parameters()[i] - alone->parameters()[i];
    most = std::max(most, difference.abs().max().item<double>());
  }
  if (most > 1e-5)
    throw CheckFailed(str("the weights differ by ", most, " from those of a single process"));
  return {{"difference", most}};
}

CheckOutcome evaluate_split(RankContext&, const std::vector<Json>&) {
  return {"lists and tensors, each entry once, in order", {}};
}
CheckOutcome evaluate_trigger(RankContext&, const std::vector<Json>&) {
  return {"set on the last rank, seen once by each rank", {}};
}
CheckOutcome evaluate_data(RankContext&, const std::vector<Json>&) {
  return {"in order and shuffled, batches per process and split batches: each row once", {}};
}
CheckOutcome evaluate_metrics(RankContext&, const std::vector<Json>& facts) {
  return {str("exact for 1 to ", 4 * facts.size() + 1, " rows"), {}};
}
CheckOutcome evaluate_training(RankContext&, const std::vector<Json>& facts) {
  return {str(kSteps, " steps from different weights give those of a single process"),
          {{"difference", max_value(facts, "difference")}}};
}

}  // namespace

std::vector<Check> checks_of_training() {
  return {
      {"split_between_processes", split, evaluate_split},
      {"trigger", trigger, evaluate_trigger},
      {"data", data, evaluate_data},
      {"metrics", metrics, evaluate_metrics},
      {"training", training, evaluate_training},
  };
}

}  // namespace hasten::cli
