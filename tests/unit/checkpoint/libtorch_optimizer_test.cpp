// Optimizers that LibTorch's torch::save has written continue with the same bits.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "hasten/base/files.h"
#include "hasten/checkpoint/pytorch_optimizer.h"
#include "hasten/formats/pytorch_file.h"
#include "hasten/optim/adamw.h"
#include "unit/code_of.h"
#include "unit/exported/edited_archive.h"

namespace libtorch_optimizer_test {

using namespace hasten;
namespace fs = std::filesystem;
namespace optim = torch::optim;

namespace {

constexpr PyTorchFileOptions kAllowed{.allow_pickle = true};

// Two weights and one that never has a gradient, and so no state.
std::vector<at::Tensor> weights() {
  const auto ramp = [](std::int64_t rows, std::int64_t columns) {
    return at::linspace(-1, 1, rows * columns).view({rows, columns}).clone().requires_grad_();
  };
  return {ramp(2, 3), ramp(3, 4), ramp(1, 2)};
}

void train(optim::Optimizer& optimizer, const std::vector<at::Tensor>& weights, int steps) {
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    at::matmul(weights[0], weights[1]).sin().square().sum().backward();
    optimizer.step();
  }
}

// The first group has options of its own.
template <class Options>
std::vector<optim::OptimizerParamGroup> groups_of(const std::vector<at::Tensor>& weights,
                                                  double lr) {
  optim::OptimizerParamGroup first({weights[0], weights[2]}, std::make_unique<Options>(lr));
  return {std::move(first), optim::OptimizerParamGroup({weights[1]})};
}

// Saves a run after three steps, and continues it with an optimizer that has other options.
template <class Saved, class Loaded = Saved, class Options>
void check_continues(const Options& options) {
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "optimizer.pt").string();
  std::vector<at::Tensor> own = weights();
  Saved saved(groups_of<Options>(own, 0.25), options);
  static_cast<Options&>(saved.param_groups()[0].options()) = options;
  saved.param_groups()[0].options().set_lr(0.25);
  train(saved, own, 3);
  torch::save(saved, file);

  std::vector<at::Tensor> others;
  for (const at::Tensor& each : own) others.push_back(each.detach().clone().requires_grad_());
  Loaded loaded(groups_of<Options>(others, 0.5), Options(0.125));
  load_pytorch_optimizer(file, loaded, kAllowed);
  CHECK(loaded.state().size() == saved.state().size());
  CHECK(loaded.param_groups()[0].options().get_lr() == 0.25);
  CHECK(loaded.param_groups()[1].options().get_lr() == options.lr());
  train(saved, own, 2);
  train(loaded, others, 2);
  for (std::size_t i = 0; i < own.size(); ++i) CHECK(own[i].equal(others[i]));
}

}  // namespace

TEST_CASE("libtorch optimizer: each kind continues with the options of the file") {
  check_continues<optim::SGD>(
      optim::SGDOptions(0.01).momentum(0.9).weight_decay(0.1).nesterov(true));
  check_continues<optim::SGD>(optim::SGDOptions(0.01));  // has no state
  check_continues<optim::Adam>(optim::AdamOptions(0.01).amsgrad(true).betas({0.8, 0.95}));
  check_continues<optim::AdamW>(optim::AdamWOptions(0.01).eps(1e-6).weight_decay(0.2));
  check_continues<optim::RMSprop>(
      optim::RMSpropOptions(0.01).alpha(0.9).momentum(0.5).centered(true));
  check_continues<optim::Adagrad>(
      optim::AdagradOptions(0.01).lr_decay(0.1).initial_accumulator_value(0.5));
}

TEST_CASE("libtorch optimizer: the state of LibTorch's AdamW continues in hasten's") {
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "optimizer.pt").string();
  std::vector<at::Tensor> own = weights();
  optim::AdamW saved(own, optim::AdamWOptions(0.01));
  train(saved, own, 3);
  torch::save(saved, file);
  AdamW loaded(own, optim::AdamWOptions(0.5));
  load_pytorch_optimizer(file, loaded, kAllowed);
  CHECK(loaded.param_groups()[0].options().get_lr() == 0.01);
  for (const at::Tensor& weight : {own[0], own[1]}) {
    void* const key = weight.unsafeGetTensorImpl();
    const auto& before = static_cast<optim::AdamWParamState&>(*saved.state().at(key));
    const auto& after = static_cast<optim::AdamWParamState&>(*loaded.state().at(key));
    CHECK(after.step() == 3);
    CHECK(after.exp_avg().equal(before.exp_avg()));
    CHECK(after.exp_avg_sq().equal(before.exp_avg_sq()));
  }
}

TEST_CASE("libtorch optimizer: a file that does not fit is refused and changes nothing") {
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "optimizer.pt").string();
  std::vector<at::Tensor> own = weights();
  optim::Adam saved(own, optim::AdamOptions(0.01));
  train(saved, own, 3);
  torch::save(saved, file);
  const auto code = [&](optim::Optimizer&& optimizer, const std::string& path) {
    const std::string found = code_of([&] { load_pytorch_optimizer(path, optimizer, kAllowed); });
    CHECK(optimizer.state().empty());
    return found;
  };
  CHECK(code_of([&] { load_pytorch_optimizer(file, saved); }) == "pickle.not-allowed");
  CHECK(code(optim::SGD(own, optim::SGDOptions(1)), file) == "checkpoint.optimizer-options");
  CHECK(code(optim::Adam({own[0], own[1]}, optim::AdamOptions(1)), file) ==
        "checkpoint.optimizer-options");
  CHECK(code(optim::Adam(groups_of<optim::AdamOptions>(own, 1), optim::AdamOptions(1)), file) ==
        "checkpoint.optimizer-options");
  CHECK(code(optim::Adam({own[1], own[0], own[2]}, optim::AdamOptions(1)), file) ==
        "checkpoint.optimizer-shape");
  // Weights and an optimizer are not taken for each other.
  CHECK(code_of([&] { load_pytorch_weights(file, kAllowed); }) == "pickle.not-weights");
  const std::string module = (folder.path() / "module.pt").string();
  torch::save(torch::nn::Linear(2, 3), module);
  CHECK(code(optim::Adam(own, optim::AdamOptions(1)), module) == "checkpoint.pytorch-state");
}

TEST_CASE("libtorch optimizer: a damaged number of groups or parameters is refused") {
  const TemporaryDirectory folder;
  std::vector<at::Tensor> own = weights();
  optim::Adam saved(own, optim::AdamOptions(0.01));
  const std::string file = (folder.path() / "optimizer.pt").string();
  torch::save(saved, file);  // without state the only tensors are these two numbers
  for (const char* record : {"data/0", "data/1"}) {
    for (const std::int64_t number : {std::int64_t{-1}, std::int64_t{2}, std::int64_t{1} << 62}) {
      CAPTURE(record);
      CAPTURE(number);
      EditedArchive archive(file, kPickleArchive);
      REQUIRE(archive.records.at(record).size() == sizeof number);
      archive.records[record] = std::string(reinterpret_cast<const char*>(&number), sizeof number);
      const fs::path damaged = folder.path() / "damaged.pt";
      write_file_atomically(damaged, archive.bytes());
      const std::string code = code_of([&] { load_pytorch_optimizer(damaged, saved, kAllowed); });
      // Two of three parameters are a possible number, which does not fit the optimizer.
      const bool is_possible = number == 2 && std::string(record) == "data/1";
      CHECK(code == (is_possible ? "checkpoint.optimizer-options" : "checkpoint.pytorch-state"));
    }
  }
}

}  // namespace libtorch_optimizer_test
