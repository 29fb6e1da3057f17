// A loop with the Accelerator on device tpu gives the same numbers as on the CPU, and compiles
// programs only in the first steps.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>

#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/optim/adamw.h"
#include "tpu/programs.h"
#include "tpu/tiny_bert.h"

namespace tpu_training_test {

using namespace hasten;

namespace {

constexpr int kSteps = 8;
constexpr double kClip = 0.5;  // some norms are below it, some above
const AcceleratorOptions kCpu{.cpu = true}, kTpu{.tpu = true};

struct Run {
  std::vector<double> losses;
  std::vector<std::int64_t> programs;  // after each step
};

template <class Optimizer, class Model, class Loss>
Run train(const AcceleratorOptions& options, std::shared_ptr<Model> net, const Loss& loss_of) {
  Accelerator accelerator(options);
  Optimizer adamw(net->parameters(), torch::optim::AdamWOptions(1e-2));
  auto [model, optimizer] = accelerator.prepare(net, adamw);
  Run run;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = loss_of(model, accelerator.device());
    accelerator.backward(loss);
    accelerator.clip_grad_norm_(net->parameters(), kClip);
    optimizer.step();
    run.losses.push_back(loss.template item<double>());
    if (options.tpu) run.programs.push_back(programs());
  }
  return run;
}

struct ClassifierImpl : torch::nn::Module {
  ClassifierImpl()
      : first(register_module("first", torch::nn::Linear(32, 64))),
        norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({64})))),
        last(register_module("last", torch::nn::Linear(64, 10))) {}
  at::Tensor forward(const at::Tensor& x) {
    return last->forward(norm->forward(at::gelu(first->forward(x))));
  }
  torch::nn::Linear first;
  torch::nn::LayerNorm norm;
  torch::nn::Linear last;
};

Run train_classifier(const AcceleratorOptions& options) {
  torch::manual_seed(1);
  const auto net = std::make_shared<ClassifierImpl>();
  const at::Tensor x = at::randn({64, 32}), labels = at::randint(0, 10, {64}, at::kLong);
  return train<torch::optim::AdamW>(options, net, [&](auto& model, at::Device device) {
    return torch::nn::functional::cross_entropy(model(x.to(device)), labels.to(device));
  });
}

template <class Optimizer>
Run train_bert(const AcceleratorOptions& options) {
  const auto net = tiny_bert(3);
  at::Tensor mask = at::ones({8, 16}, at::kLong);
  mask.narrow(1, 12, 4).narrow(0, 0, 4).zero_();
  const TensorDict batch = {{"input_ids", at::randint(1, 100, {8, 16}, at::kLong)},
                            {"attention_mask", mask},
                            {"labels", at::randint(0, 3, {8}, at::kLong)}};
  return train<Optimizer>(options, net, [&](auto& model, at::Device device) {
    return model(to_device(batch, device)).loss;
  });
}

void check_same(const Run& tpu, const Run& cpu) {
  REQUIRE(tpu.losses.size() == kSteps);
  for (int step = 0; step < kSteps; ++step) {
    CAPTURE(step);
    CHECK(std::abs(tpu.losses[step] - cpu.losses[step]) < 1e-4);
  }
  CHECK(cpu.losses.back() < cpu.losses.front());
  // Every program is compiled in the first two steps. Compilers run in parallel, so a program may
  // be counted one step later.
  CHECK(tpu.programs.front() > 0);
  CHECK(tpu.programs.back() == tpu.programs[2]);
}

}  // namespace

TEST_CASE("tpu: eight steps of a small classifier equal the CPU's") {
  const Run cpu = train_classifier(kCpu);  // LibTorch's engine starts its threads here
  check_same(train_classifier(kTpu), cpu);
}

TEST_CASE("tpu: eight steps of a small BERT equal the CPU's, with LibTorch's AdamW and hasten's") {
  const Run cpu = train_bert<torch::optim::AdamW>(kCpu);
  SUBCASE("torch::optim::AdamW") { check_same(train_bert<torch::optim::AdamW>(kTpu), cpu); }
  SUBCASE("hasten::AdamW") { check_same(train_bert<hasten::AdamW>(kTpu), cpu); }
}

TEST_CASE("tpu: a model saved on the device and read on the CPU has equal bits") {
  namespace fs = std::filesystem;
  const TemporaryDirectory temporary;
  const fs::path& folder = temporary.path();
  const auto net = tiny_bert(3);
  TensorDict before;
  for (const auto& [name, tensor] : net->state_dict()) before[name] = tensor.clone();
  Accelerator accelerator(kTpu);
  auto [model] = accelerator.prepare(net);
  model.unwrap()->save_pretrained(folder);
  const auto loaded = load_model(folder, {.task = Task::text_classification}).model;
  const TensorDict after = loaded->state_dict();
  CHECK(after.size() == before.size());
  for (const auto& [name, tensor] : before) {
    CAPTURE(name);
    CHECK(at::equal(after.at(name), tensor));
  }
  auto [again] = accelerator.prepare(loaded);
  for (const auto& [name, tensor] : loaded->state_dict()) {
    CAPTURE(name);
    CHECK(tensor.device() == accelerator.device());
    CHECK(at::equal(tensor.cpu(), before.at(name)));
  }
}

}  // namespace tpu_training_test
