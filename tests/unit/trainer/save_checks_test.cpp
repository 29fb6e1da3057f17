// A run that could not save its first checkpoint fails before its first step.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/process/notebook_launcher.h"
#include "hasten/trainer/trainer.h"
#include "unit/code_of.h"
#include "unit/prepare/multiprocess_checks.h"
#include "unit/trainer/tiny.h"

namespace trainer_save_checks_test {

using namespace hasten;
using namespace hasten::tiny_runs;
using hasten::multiprocess_checks::require;
namespace fs = std::filesystem;

namespace {

struct StepCounter : TrainerCallback {
  void on_step_begin(const TrainerEvent&, TrainerControl&) override { ++begun; }
  int begun = 0;
};

// Two steps, and a checkpoint that is due long after them.
TrainingArguments two_steps(const fs::path& folder) {
  TrainingArguments args = short_run(folder);
  args.max_steps = 2;
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 500;
  return args;
}

// Has LibTorch's options, and could have any state.
struct UnknownSgd : torch::optim::SGD {
  using torch::optim::SGD::SGD;
};

struct TrainerOfUnknownSgd : Trainer {
  using Trainer::Trainer;
  std::unique_ptr<torch::optim::Optimizer> create_optimizer() override {
    return std::make_unique<UnknownSgd>(model().parameters(), torch::optim::SGDOptions(0.1));
  }
};

// The code of the error of a run, and the number of steps that it has begun.
using Outcome = std::pair<std::string, int>;

Outcome run_of_unknown_optimizer(const TrainingArguments& args) {
  const auto counter = std::make_shared<StepCounter>();
  TrainerOfUnknownSgd trainer(
      new_model(), args,
      TrainerParts{.train_dataset = TrainerDataset(rows(8)), .callbacks = {counter}});
  const std::string code = code_of([&] { trainer.train(); });
  return {code, counter->begun};
}

struct BufferNet : torch::nn::Module {
  explicit BufferNet(const at::Tensor& buffer) {
    layer = register_module("layer", torch::nn::Linear(2, 1));
    register_buffer("extra", buffer);
  }
  torch::nn::Linear layer = nullptr;
};

struct OnesRows {
  std::int64_t size() const { return 8; }
  at::Tensor get(std::int64_t) const { return at::ones({2}); }
};

Outcome run_with_buffer(const TrainingArguments& args, const at::Tensor& buffer) {
  const auto counter = std::make_shared<StepCounter>();
  Trainer trainer(
      std::make_shared<BufferNet>(buffer), args,
      {.train_dataset = TrainerDataset(OnesRows()),
       .compute_loss = [](BufferNet& net,
                          const at::Tensor& x) { return net.layer->forward(x).square().mean(); },
       .callbacks = {counter}});
  const std::string code = code_of([&] { trainer.train(); });
  return {code, counter->begun};
}

}  // namespace

TEST_CASE("save checks: an optimizer that cannot be saved is found before the first step") {
  const Folder folder;
  TrainingArguments args = two_steps(folder.path);
  const Outcome refused{"checkpoint.unknown-optimizer", 0};
  CHECK(run_of_unknown_optimizer(args) == refused);
  args.save_strategy = SaveStrategy::no;
  args.enable_jit_checkpoint = true;
  CHECK(run_of_unknown_optimizer(args) == refused);
  args.enable_jit_checkpoint = false;
  args.hash_chain_steps = 1;
  CHECK(run_of_unknown_optimizer(args) == refused);
}

TEST_CASE("save checks: an optimizer that nothing saves may be any") {
  const Folder unsaved, weights;
  TrainingArguments args = two_steps(unsaved.path);
  args.save_strategy = SaveStrategy::no;
  CHECK(run_of_unknown_optimizer(args) == Outcome{"none", 2});
  args = two_steps(weights.path);
  args.save_only_model = true;
  args.save_steps = 1;
  CHECK(run_of_unknown_optimizer(args) == Outcome{"none", 2});
  CHECK(last_checkpoint(weights.path).filename() == "checkpoint-2");
}

TEST_CASE("save checks: every process reports an optimizer that cannot be saved") {
  const Folder folder;
  debug_launcher([&] {
    require(run_of_unknown_optimizer(two_steps(folder.path)) ==
                Outcome{"checkpoint.unknown-optimizer", 0},
            "the optimizer is not refused before the first step");
  });
}

TEST_CASE("save checks: a buffer that safetensors lacks is found before the first step") {
  const Outcome refused{"safetensors.unsupported", 0};
  const at::Tensor complex = at::zeros({2}, at::kComplexDouble), sparse = at::eye(2).to_sparse();
  for (const at::Tensor& buffer : {complex, sparse}) {
    const Folder saved, weights, unsaved;
    CHECK(run_with_buffer(two_steps(saved.path), buffer) == refused);
    TrainingArguments args = two_steps(weights.path);
    args.save_only_model = true;
    CHECK(run_with_buffer(args, buffer) == refused);
    args = two_steps(unsaved.path);
    args.save_strategy = SaveStrategy::no;
    CHECK(run_with_buffer(args, buffer) == Outcome{"none", 2});
  }
  const Folder folder;
  CHECK(run_with_buffer(two_steps(folder.path), at::zeros({2}, at::kComplexFloat)) ==
        Outcome{"none", 2});
}

}  // namespace trainer_save_checks_test
