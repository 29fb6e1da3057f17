// Tests a complete dry TPU with a CPU engine's compiler instead of libtpu's. This compiler adds no
// padding, so the estimate must equal the sum of the tensors' sizes in bytes.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cstdlib>

#include "hasten/accelerator.h"
#include "hasten/optim/adamw.h"
#include "hasten/tpu/anatomy/dry_tpu.h"
#include "unit/code_of.h"

namespace tpu_dry_test {

using namespace hasten;
using anatomy::Component;

namespace {

struct NetImpl : torch::nn::Module {
  NetImpl()
      : first(register_module("first", torch::nn::Linear(32, 64))),
        last(register_module("last", torch::nn::Linear(64, 10))),
        scale(register_buffer("scale", at::ones({64}))) {}
  at::Tensor forward(const at::Tensor& x) {
    return last->forward(at::gelu(first->forward(x)) * scale);
  }
  torch::nn::Linear first, last;
  at::Tensor scale;
};

constexpr std::int64_t kParameters = 4 * (32 * 64 + 64 + 64 * 10 + 10), kBuffers = 4 * 64;
// The first layer's output, gelu times the buffer, the logits and the loss.
constexpr std::int64_t kActivations = 4 * (2 * 16 * 64 + 16 * 10 + 1);

void train(Accelerator& accelerator, auto& model, auto& optimizer, int steps) {
  const at::Device tpu = accelerator.device();
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    const at::Tensor x = at::randn({16, 32}).to(tpu), y = at::randint(0, 10, {16}).to(tpu);
    accelerator.backward(torch::nn::functional::cross_entropy(model(x), y));
    optimizer.step();
  }
}

}  // namespace

TEST_CASE("dry tpu: the estimate of steps on device tpu equals the sum of the tensors' sizes") {
  CHECK(code_of([] { DryTpu("v5e:2"); }) == "config.unknown-device");
  CHECK(code_of([] { DryTpu("v5e:2x2", "/nowhere/libtpu.so"); }) == "device.tpu-compiler");
  DryTpu dry("v5e:2x2", std::getenv("HASTEN_TEST_ENGINE"));
  CHECK(DryTpu::active() == &dry);
  CHECK(code_of([] { DryTpu("v6e:2x4"); }) == "device.tpu-dry-twice");

  Accelerator accelerator({.tpu = true});
  const at::Device tpu = accelerator.device();
  const auto net = std::make_shared<NetImpl>();
  hasten::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(1e-2));
  auto [model, optimizer] = accelerator.prepare(net, adamw);
  CHECK(dry.estimate().now.tensors == kParameters + kBuffers);

  // The host has no memory for the tensors: reading one returns ones.
  const at::Tensor twos = at::full({3}, 2.0).to(tpu) * 3;
  CHECK(at::equal(twos.cpu(), at::ones({3})));

  {
    const at::Tensor large = at::ones({1024, 1024}, tpu).add(1), more = large.add(1);
    CHECK(dry.estimate().now.tensors >= kParameters + kBuffers + (std::int64_t{8} << 20));
  }

  train(accelerator, model, optimizer, 4);
  const anatomy::TpuEstimate estimate = dry.estimate();
  CHECK(estimate.steps == 4);
  CHECK(estimate.topology == "v5e:2x2");
  CHECK_FALSE(estimate.ahead_of_time);
  CHECK(estimate.programs > 10);
  CHECK(estimate.programs_after_second_step == 0);
  CHECK(estimate.runs > estimate.programs);
  CHECK(estimate.failed.empty());
  CHECK(estimate.mismatched_runs == 0);  // each program's arguments add up to the compiler's sum
  CHECK(bytes_of(estimate.components, Component::model_weights) == kParameters + kBuffers);
  CHECK(bytes_of(estimate.components, Component::gradients) == kParameters);
  CHECK(bytes_of(estimate.components, Component::optimizer_states) == 2 * kParameters);
  CHECK(bytes_of(estimate.components, Component::activations) == kActivations);
  CHECK(estimate.peak.tensors >= 4 * kParameters + kBuffers);
  CHECK(estimate.peak.total() ==
        estimate.peak.tensors + estimate.peak.temporaries + estimate.peak.code);

  // Steps during the backward pass write weights and moments, which are no activations.
  Accelerator stepping({.tpu = true, .step_in_backward = true});
  const auto other = std::make_shared<NetImpl>();
  hasten::AdamW other_adamw(other->parameters(), torch::optim::AdamWOptions(1e-2));
  auto [other_model, other_optimizer] = stepping.prepare(other, other_adamw);
  train(stepping, other_model, other_optimizer, 2);
  CHECK(dry.estimate().activations == kActivations);
}

}  // namespace tpu_dry_test
