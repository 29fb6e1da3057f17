// Compares loss scaling with torch.amp.GradScaler, step by step (generate_grad_scaler.py), on
// tested::device().
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "device.h"
#include "hasten/accelerator.h"
#include "hasten/optim/adamw.h"
#include "hasten/optim/grad_scaler.h"
#include "hasten/optim/gradients.h"

namespace oracle_grad_scaler_test {

using namespace hasten;
using Json = nlohmann::json;

namespace {

const Json& recorded() {
  static const Json json =
      Json::parse(std::ifstream(tested::folder() / "oracle/data/scaling/grad_scaler.json"));
  return json;
}

at::Tensor tensor_of(const Json& numbers, at::IntArrayRef sizes) {
  return torch::tensor(numbers.get<std::vector<float>>()).view(sizes);
}

struct NetImpl : torch::nn::Module {
  NetImpl(const Json& start, bool sparse) {
    table = register_module(
        "table", torch::nn::Embedding(torch::nn::EmbeddingOptions(20, 6).sparse(sparse)));
    first = register_module("first", torch::nn::Linear(6, 10));
    last = register_module("last", torch::nn::Linear(10, 1));
    const torch::NoGradGuard no_grad;
    const auto all = parameters();
    for (std::size_t i = 0; i < all.size(); ++i) all[i].copy_(tensor_of(start[i], all[i].sizes()));
  }
  at::Tensor forward(const at::Tensor& ids) { return last(torch::tanh(first(table(ids).mean(1)))); }
  double distance(const Json& expected) const {
    double most = 0;
    const auto all = parameters();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const at::Tensor difference = all[i].detach().cpu() - tensor_of(expected[i], all[i].sizes());
      most = std::max(most, difference.abs().max().item<double>());
    }
    return most;
  }
  std::vector<at::Tensor> layers() const {
    return {first->weight, first->bias, last->weight, last->bias};
  }
  torch::nn::Embedding table{nullptr};
  torch::nn::Linear first{nullptr}, last{nullptr};
};
TORCH_MODULE(Net);

at::Tensor ids_of(const Json& batch) {
  return torch::tensor(batch.at("ids").get<std::vector<std::int64_t>>())
      .view({8, 3})
      .to(tested::device());
}

at::Tensor targets_of(const Json& batch) {
  return tensor_of(batch.at("targets"), {8, 1}).to(tested::device());
}

}  // namespace

TEST_CASE("grad scaler: scales, skipped steps and weights are those of torch.amp.GradScaler") {
  const Json& run = recorded().at("plain");
  Net net(run.at("start"), /*sparse=*/true);
  net->to(tested::device());
  torch::optim::SGD sgd({net->table->weight}, torch::optim::SGDOptions(0.5));
  AdamW adamw(net->layers(), AdamWOptions(0.02));
  GradScaler scaler({.init_scale = run.at("init_scale").get<double>(),
                     .growth_interval = run.at("growth_interval").get<std::int64_t>()});
  for (std::size_t i = 0; i < run.at("steps").size(); ++i) {
    CAPTURE(i);
    const Json &expected = run.at("steps")[i], &batch = run.at("batches")[i];
    const double factor = expected.at("factor").is_string()
                              ? std::numeric_limits<double>::quiet_NaN()
                              : expected.at("factor").get<double>();
    const at::Tensor loss =
        (net->forward(ids_of(batch)) - targets_of(batch)).square().mean() * factor;
    scaler.scale(loss).backward();
    if (i % 2 == 1) {
      scaler.unscale_(adamw);
      const double norm = clip_grad_norm_(net->layers(), 0.1);
      if (!expected.at("norm").is_null())
        CHECK(norm == doctest::Approx(expected.at("norm").get<double>()).epsilon(1e-4));
    }
    const Json& found = expected.at("found_inf");
    CHECK(scaler.step(sgd) == (found[0].get<double>() == 0));
    CHECK(scaler.step(adamw) == (found[1].get<double>() == 0));
    scaler.update();
    sgd.zero_grad();
    adamw.zero_grad();
    CHECK(scaler.get_scale() == expected.at("scale").get<double>());
    CHECK(scaler.state_dict().at("_growth_tracker").item<std::int64_t>() ==
          expected.at("growth_tracker").get<std::int64_t>());
    if (!expected.at("weights").is_null())
      CHECK(net->distance(expected.at("weights")) < tested::limit(1e-5));
  }
  CHECK(net->distance(run.at("final")) < tested::limit(1e-5));
  for (const auto& [name, value] : run.at("state").items())
    CHECK(scaler.state_dict().at(name).item<double>() == value.get<double>());
}

TEST_CASE("grad scaler: an Accelerator with fp16 trains as a loop of PyTorch with autocast") {
  const Json& run = recorded().at("autocast");
  Accelerator accelerator(
      {.mixed_precision = Precision::fp16,
       .grad_scaler = {.growth_interval = run.at("growth_interval").get<std::int64_t>()},
       .gradient_accumulation_steps = 2,
       .cpu = tested::device().is_cpu()});
  Net net(run.at("start"), /*sparse=*/false);
  AdamW adamw(net->parameters(), AdamWOptions(0.05));
  auto [model, optimizer] = accelerator.prepare(net, adamw);
  std::int64_t step = 0, skipped = 0;
  for (const Json& batch : run.at("batches")) {
    const auto guard = accelerator.accumulate(model);
    at::Tensor loss;
    {
      const auto autocast = accelerator.autocast();
      const at::Tensor out = model(ids_of(batch));
      CHECK((out.scalar_type() == at::kHalf));
      loss = torch::mse_loss(out, targets_of(batch));
    }
    CHECK((loss.scalar_type() == at::kFloat));
    accelerator.backward(loss);
    (void)accelerator.clip_grad_norm_(net->parameters(), 5.0);
    optimizer.step();
    optimizer.zero_grad();
    if (!accelerator.sync_gradients()) continue;
    CAPTURE(step);
    const Json& expected = run.at("steps")[static_cast<std::size_t>(step)];
    CHECK(optimizer.step_was_skipped() == expected.at("skipped").get<bool>());
    CHECK(accelerator.optimizer_step_was_skipped() == optimizer.step_was_skipped());
    // As LinearLR does, lowers the rate from 1 to 0.1 of its value within 20 steps that were not
    // skipped.
    skipped += optimizer.step_was_skipped();
    CHECK(optimizer.steps() == ++step - skipped);
    const double rate = 0.05 * (1 - 0.9 * static_cast<double>(optimizer.steps()) / 20);
    CHECK(rate == doctest::Approx(expected.at("rate").get<double>()));
    for (auto& group : adamw.param_groups()) group.options().set_lr(rate);
    CHECK(loss.item<double>() == doctest::Approx(expected.at("loss").get<double>()).epsilon(0.01));
  }
  CHECK(step == 20);
  CHECK(skipped > 0);
  CHECK(net->distance(run.at("final")) < tested::limit(5e-3));
}

}  // namespace oracle_grad_scaler_test
