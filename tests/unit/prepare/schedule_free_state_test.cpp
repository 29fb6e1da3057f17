// save_state and load_state with a schedule-free optimizer: the mode of the weights belongs to the
// checkpoint.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/optim/detail/schedule_free.h"
#include "unit/code_of.h"

namespace prepare_schedule_free_state_test {

using namespace hasten;
namespace fs = std::filesystem;

namespace {

using Weights = std::vector<at::Tensor>;
// An action of a program with its Accelerator and its optimizer, before or between its steps.
using Action = std::function<void(Accelerator&, WeightAveragingOptimizer&)>;

// Makes the steps from `begin` to `end` with a new net and returns the means of its weights.
// `at_begin` and `at_step_3` are called before the first step and before step 3.
template <class Options>
Weights train(int begin, int end, const Action& at_begin, const Action& at_step_3 = {}) {
  torch::manual_seed(3);
  torch::nn::Linear net(3, 2);
  ScheduleFree<Options> averaging(net->parameters(), Options(0.05));
  Accelerator accelerator({.cpu = true});
  auto [model, optimizer] = accelerator.prepare(net, averaging);
  at_begin(accelerator, averaging);
  for (int step = begin; step < end; ++step) {
    if (step == 3 && at_step_3) at_step_3(accelerator, averaging);
    optimizer.zero_grad();
    accelerator.backward(model(at::full({4, 3}, 0.1 * (step + 1))).square().sum());
    optimizer.step();
  }
  averaging.eval();
  Weights means;
  for (const at::Tensor& each : net->parameters()) means.push_back(each.detach().clone());
  return means;
}

bool have_same_bits(const Weights& a, const Weights& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!at::equal(a[i], b[i])) return false;
  }
  return a.size() == b.size();
}

void start_training(Accelerator&, WeightAveragingOptimizer& optimizer) { optimizer.train(); }

// Loads the state into an optimizer in this mode, and trains.
Action load(const fs::path& state, bool trains_first) {
  return [=](Accelerator& accelerator, WeightAveragingOptimizer& optimizer) {
    if (trains_first) optimizer.train();
    CHECK(accelerator.load_state(state));
    optimizer.train();
  };
}

template <class Options>
void check_continues(const fs::path& folder) {
  const fs::path averaged = folder / str(Options::kName, "_averaged"),
                 trained = folder / str(Options::kName, "_trained");
  const Weights with_mean = train<Options>(
      0, 6, start_training, [&](Accelerator& accelerator, WeightAveragingOptimizer& optimizer) {
        optimizer.eval();
        accelerator.save_state(averaged);
        optimizer.train();
      });
  const Weights without = train<Options>(0, 6, start_training,
                                         [&](Accelerator& accelerator, WeightAveragingOptimizer&) {
                                           accelerator.save_state(trained);
                                         });
  for (const bool trains_first : {false, true}) {
    CAPTURE(trains_first);
    CHECK(have_same_bits(train<Options>(3, 6, load(averaged, trains_first)), with_mean));
    CHECK(have_same_bits(train<Options>(3, 6, load(trained, trains_first)), without));
  }
}

}  // namespace

TEST_CASE("save_state: a schedule-free optimizer continues in the mode of the checkpoint") {
  const TemporaryDirectory folder;
  check_continues<ScheduleFreeSGDOptions>(folder.path());
  check_continues<ScheduleFreeAdamWOptions>(folder.path());
}

TEST_CASE("load_state: a checkpoint without a mode has the weights of eval(), and step() says so") {
  using Options = ScheduleFreeSGDOptions;
  const TemporaryDirectory folder;
  const fs::path state = folder.path() / "state", file = state / "accelerator_state.json";
  const Weights straight = train<Options>(
      0, 6, start_training, [&](Accelerator& accelerator, WeightAveragingOptimizer& optimizer) {
        optimizer.eval();
        accelerator.save_state(state);
        optimizer.train();
      });
  nlohmann::json json = nlohmann::json::parse(read_file(file));
  CHECK(json.at("optimizers").at(0).at("is_training") == false);
  json.at("optimizers").at(0).erase("is_training");
  write_file_atomically(file, json.dump(2) + "\n");
  write_manifest(state);
  CHECK(have_same_bits(train<Options>(3, 6, load(state, /*trains_first=*/true)), straight));

  const Action without_train = [&](Accelerator& accelerator, WeightAveragingOptimizer& optimizer) {
    optimizer.train();
    accelerator.load_state(state);
  };
  CHECK(code_of([&] { train<Options>(3, 6, without_train); }) == "optim.eval-mode");

  json.at("optimizers").at(0)["is_training"] = 1;
  write_file_atomically(file, json.dump(2) + "\n");
  write_manifest(state);
  CHECK(code_of([&] { train<Options>(3, 6, without_train); }) == "checkpoint.state");
}

}  // namespace prepare_schedule_free_state_test
