// Accelerate's test_utils/scripts/test_script.py (1.15), assert by assert. The comments name its
// functions; docs/reference/ported_tests.md says what is tested elsewhere.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "hasten/base/files.h"
#include "hasten/data/loader.h"
#include "hasten/process/notebook_launcher.h"
#include "ported/regression.h"

namespace ported_accelerate_script_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using namespace hasten::ported;

namespace {

// Runs the function in one process, in two, and in four.
template <class Function>
void in_each_world(Function function) {
  for (const int world : {1, 2, 4}) {
    CAPTURE(world);
    debug_launcher(function, world);
  }
}

// Returns the rows of a pass in the order in which gather() joins them.
template <class Prepared>
at::Tensor gather_pass(const Accelerator& accelerator, Prepared& loader) {
  std::vector<at::Tensor> steps;
  for (auto& batch : loader) steps.push_back(accelerator.gather(batch));
  return at::cat(steps);
}

std::vector<std::int64_t> numbers(std::int64_t count) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::int64_t round_up(std::int64_t count, std::int64_t parts) {
  return (count + parts - 1) / parts;
}

// Returns the numbers of all processes, in rank order.
std::vector<std::int64_t> gather_numbers(const Accelerator& accelerator,
                                         const std::vector<std::int64_t>& own) {
  std::vector<std::int64_t> all;
  std::string text;
  for (const std::int64_t each : own) text += str(each, ' ');
  for (const std::string& part : accelerator.group().gather_object(text)) {
    std::istringstream words(part);
    for (std::int64_t each = 0; words >> each;) all.push_back(each);
  }
  return all;
}

}  // namespace

TEST_CASE("script: the main process runs its block before the others") {
  // process_execution_check, main_process_first
  const TemporaryDirectory folder;
  const std::filesystem::path path = folder.path() / "order.txt";
  for (const int world : {1, 2, 4}) {
    debug_launcher(
        [&] {
          Accelerator accelerator;
          {
            const auto turn = accelerator.main_process_first();
            if (accelerator.is_main_process())
              std::this_thread::sleep_for(std::chrono::milliseconds(100));
            std::ofstream(path, std::ios::app) << (accelerator.is_main_process() ? "m" : "o");
          }
          accelerator.wait_for_everyone();
          if (accelerator.is_main_process())
            require(read_file(path) == "m" + std::string(static_cast<std::size_t>(world - 1), 'o'),
                    "the main process was not first, or a process did not run its block");
          accelerator.wait_for_everyone();
          if (accelerator.is_main_process()) std::filesystem::remove(path);
        },
        world);
  }
}

TEST_CASE("script: functions for one process run in that process only") {
  // process_execution_check, the decorators
  in_each_world([] {
    Accelerator accelerator;
    const std::int64_t rank = accelerator.process().process_index;
    const std::int64_t world = accelerator.process().num_processes;
    int calls = 0;
    const auto count = [&] { ++calls; };
    accelerator.on_main_process(count);
    require(calls == (rank == 0 ? 1 : 0), "on_main_process");
    accelerator.on_local_main_process(count);
    require(calls == (rank == 0 ? 2 : 0), "on_local_main_process");
    calls = 0;
    accelerator.on_last_process(count);
    require(calls == (rank == world - 1 ? 1 : 0), "on_last_process");
    for (std::int64_t each = 0; each < world; ++each) {
      calls = 0;
      accelerator.on_process(each, count);
      require(calls == (rank == each ? 1 : 0), str("on_process(", each, ")"));
    }
  });
}

TEST_CASE("script: a second Accelerator has the state of the first") {
  // init_state_check
  in_each_world([] {
    Accelerator first, second;
    require(first.process().process_index == second.process().process_index &&
                first.process().num_processes == second.process().num_processes &&
                first.device() == second.device(),
            "the states differ");
  });
}

TEST_CASE("script: a prepared loader gives every row once, in order unless it is shuffled") {
  // dl_preparation_check and, with dispatch_batches, central_dl_preparation_check
  in_each_world([] {
    for (const bool dispatch : {false, true}) {
      for (const bool split : {false, true}) {
        Accelerator accelerator(
            {.dataloader_config = {.split_batches = split, .dispatch_batches = dispatch}});
        const std::int64_t length = 32 * accelerator.process().num_processes;
        auto ordered = make_loader(NumberRows{length}, {.batch_size = 8});
        auto shuffled = make_loader(NumberRows{length}, {.batch_size = 8, .shuffle = true});
        auto [in_order, random] = accelerator.prepare(ordered, shuffled);
        require(at::equal(gather_pass(accelerator, in_order), torch::arange(length)),
                "wrong result of a loader that is not shuffled");
        const at::Tensor rows = gather_pass(accelerator, random);
        require(!at::equal(rows, torch::arange(length)), "the loader is not shuffled");
        require(at::equal(std::get<0>(rows.sort()), torch::arange(length)),
                "wrong result of a shuffled loader");
      }
    }
  });
}

TEST_CASE("script: a loader keeps the order that it was given") {
  // custom_sampler_check
  in_each_world([] {
    Accelerator accelerator;
    const std::int64_t length = 32 * accelerator.process().num_processes;
    const auto backwards = [](std::int64_t rows, std::uint64_t, std::int64_t) {
      std::vector<std::int64_t> order = numbers(rows);
      std::reverse(order.begin(), order.end());
      return order;
    };
    auto raw = make_loader(NumberRows{length}, {.batch_size = 8, .order = backwards});
    auto [loader] = accelerator.prepare(raw);
    require(at::equal(gather_pass(accelerator, loader), torch::arange(length).flip(0)),
            "prepare() changed the order");
  });
}

TEST_CASE("script: one seed and epoch give one order, and another seed another one") {
  // check_seedable_sampler, check_seedable_sampler_with_data_seed
  in_each_world([] {
    Accelerator accelerator;
    const ColumnDataset rows = regression_rows(10);
    const auto three_passes = [&](auto& loader) {
      std::vector<at::Tensor> all;
      for (int pass = 0; pass < 3; ++pass) {
        for (auto& batch : loader) all.push_back(batch.at("x").clone());
      }
      return at::cat(all);
    };
    auto raw = make_loader(rows, {.batch_size = 2, .shuffle = true, .seed = 42});
    auto [loader] = accelerator.prepare(raw);
    const at::Tensor first = three_passes(loader);
    loader->set_epoch(0);
    require(at::allclose(first, three_passes(loader)), "the items of one seed and epoch differ");
    auto other = make_loader(rows, {.batch_size = 2, .shuffle = true, .seed = 43});
    auto [other_loader] = accelerator.prepare(other);
    require(!at::allclose(first, three_passes(other_loader)), "another seed has the same items");
  });
}

namespace {

constexpr std::int64_t kBatch = 8;

struct Pairs : torch::data::datasets::Dataset<Pairs> {
  explicit Pairs(ColumnDataset rows) : rows(std::move(rows)) {}
  torch::data::Example<> get(std::size_t index) override {
    const TensorDict row = rows.get(static_cast<std::int64_t>(index));
    return {row.at("x"), row.at("y")};
  }
  torch::optional<std::size_t> size() const override {
    return static_cast<std::size_t>(rows.size());
  }
  ColumnDataset rows;
};

auto loader_of_torch(const ColumnDataset& rows, std::int64_t batch_size) {
  torch::manual_seed(42);
  return torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      Pairs(rows).map(torch::data::transforms::Stack<>()),
      torch::data::DataLoaderOptions().batch_size(static_cast<std::size_t>(batch_size)));
}
auto loader_of_hasten(const ColumnDataset& rows, std::int64_t batch_size) {
  return make_loader(rows, {.batch_size = batch_size, .shuffle = true, .seed = 42});
}

std::pair<at::Tensor, at::Tensor> pair_of(const TensorDict& batch) {
  return {batch.at("x"), batch.at("y")};
}
std::pair<at::Tensor, at::Tensor> pair_of(const torch::data::Example<>& batch) {
  return {batch.data, batch.target};
}

// Trains with plain LibTorch on the rows of all processes.
template <class Loader>
std::vector<at::Tensor> mock_training(Loader& loader) {
  RegressionModel model;
  torch::optim::SGD optimizer(model.parameters(), 0.1);
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (auto& batch : loader) {
      const auto [x, y] = pair_of(batch);
      optimizer.zero_grad();
      mse(model.forward(x), y).backward();
      optimizer.step();
    }
  }
  return copies(model.parameters());
}

template <class Raw>
std::vector<at::Tensor> train(Accelerator& accelerator, Raw& raw) {
  const auto net = std::make_shared<RegressionModel>();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [loader, model, optimizer] = accelerator.prepare(raw, net, sgd);
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (auto& batch : loader) {
      const auto [x, y] = pair_of(batch);
      optimizer.zero_grad();
      accelerator.backward(mse(model(x), y));
      optimizer.step();
    }
  }
  require_same_on_all_ranks(accelerator.group(), net->parameters(), "a parameter");
  return copies(net->parameters());
}

}  // namespace

TEST_CASE("script: training in several processes gives the model of one") {
  // training_check, with and without the seedable sampler, with split_batches, and with bf16
  for (const int world : {1, 2, 4}) {
    CAPTURE(world);
    const ColumnDataset rows = regression_rows(kBatch * 4 * world);
    auto seeded = loader_of_hasten(rows, kBatch * world);
    auto drawn = loader_of_torch(rows, kBatch * world);
    const std::vector<at::Tensor> by_hasten = mock_training(seeded),
                                  by_torch = mock_training(*drawn);
    debug_launcher(
        [&] {
          Accelerator plain;
          auto own = loader_of_hasten(rows, kBatch);
          require_close(train(plain, own), by_hasten, "no batch split");
          auto own_of_torch = loader_of_torch(rows, kBatch);
          require_close(train(plain, own_of_torch), by_torch, "a loader of torch::data");
          Accelerator split({.dataloader_config = {.split_batches = true}});
          auto whole = loader_of_hasten(rows, kBatch * world);
          require_close(train(split, whole), by_hasten, "batches are split");
          // Autocast does not convert the operations of this model to bfloat16.
          Accelerator bf16({.mixed_precision = Precision::bf16});
          auto again = loader_of_hasten(rows, kBatch);
          require_close(train(bf16, again), by_hasten, "bf16");
        },
        world);
  }
}

TEST_CASE("script: a list is divided, padded, and gathered again") {
  // test_split_between_processes_list
  in_each_world([] {
    Accelerator accelerator;
    const std::int64_t world = accelerator.process().num_processes;
    require(accelerator.split_between_processes(numbers(2 * world)).size() == 2,
            "each process has two items");
    for (const std::int64_t length : {2 * world - 1, 2 * world}) {
      const auto part = accelerator.split_between_processes(numbers(length), true);
      require(static_cast<std::int64_t>(part.size()) == round_up(length, world),
              "the number of items of a process");
      auto all = gather_numbers(accelerator, part);
      all.resize(static_cast<std::size_t>(length));
      require(all == numbers(length), "the gathered results");
    }
  });
}

TEST_CASE("script: each list of a map is divided, and so is each tensor") {
  // test_split_between_processes_nested_dict
  in_each_world([] {
    Accelerator accelerator;
    const std::int64_t world = accelerator.process().num_processes, share = 8 / world,
                       first = accelerator.process().process_index * share;
    const std::vector<std::string> letters = {"a", "b", "c", "d", "e", "f", "g", "h"};
    const std::map<std::string, std::vector<std::string>> lists = {{"b", letters}, {"c", letters}};
    const auto part = accelerator.split_between_processes(lists);
    const std::vector<std::string> expected(letters.begin() + first,
                                            letters.begin() + first + share);
    require(part.at("b") == expected && part.at("c") == expected, "the parts of lists");
    const std::map<std::string, at::Tensor> tensors = {{"a", torch::arange(1, 9)},
                                                       {"c", torch::arange(1, 9)}};
    for (const auto& [name, tensor] : accelerator.split_between_processes(tensors))
      require(at::equal(tensor, torch::arange(first + 1, first + share + 1)),
              "the part of tensor " + name);
  });
}

TEST_CASE("script: a tensor is divided along its first dimension, padded, and gathered again") {
  // test_split_between_processes_tensor
  in_each_world([] {
    Accelerator accelerator;
    const std::int64_t world = accelerator.process().num_processes;
    if (world == 2) {
      const at::Tensor rows = torch::arange(8).view({2, 4});
      const std::int64_t rank = accelerator.process().process_index;
      require(at::equal(accelerator.split_between_processes(rows), rows.narrow(0, rank, 1)),
              "a row for each process");
    }
    for (const std::int64_t length : {2 * world, 2 * world - 1}) {
      const at::Tensor data = torch::arange(length).unsqueeze(1);
      const at::Tensor part = accelerator.split_between_processes(data, true);
      require(part.size(0) == round_up(length, world), "the number of rows of a process");
      require(at::equal(accelerator.gather(part).narrow(0, 0, length), data),
              "the gathered results");
    }
  });
}

TEST_CASE("script: the first processes get one item more of a length that is not divisible") {
  // test_split_between_processes_evenly
  in_each_world([] {
    Accelerator accelerator;
    const std::int64_t world = accelerator.process().num_processes;
    const auto part = accelerator.split_between_processes(numbers(17));
    const bool has_extra = accelerator.process().process_index < 17 % world;
    require(static_cast<std::int64_t>(part.size()) == 17 / world + (has_extra ? 1 : 0),
            "the number of items of a process");
  });
}

}  // namespace ported_accelerate_script_test
