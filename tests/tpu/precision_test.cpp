// The dtypes of bfloat16 training on device tpu, in both documented modes.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cstdlib>

#include "hasten/accelerator.h"
#include "hasten/data/loader.h"
#include "hasten/optim/adamw.h"

namespace tpu_precision_test {

using namespace hasten;

namespace {

struct NetImpl : torch::nn::Module {
  NetImpl() {
    weight = register_parameter("weight", at::randn({8, 4}));
    scale = register_parameter("scale", at::ones({4}, at::kDouble));
  }
  at::Tensor forward(const at::Tensor& x) {
    product = at::matmul(x, weight);
    return product * scale;
  }
  at::Tensor weight, scale, product;
};
TORCH_MODULE(Net);

struct Rows {
  std::int64_t size() const { return 4; }
  TensorDict get(std::int64_t) const {
    return {{"x", at::ones({8})},
            {"time", at::full({2}, 1.0 / 3, at::kDouble)},
            {"labels", at::full({}, 1.0 / 3, at::kDouble)}};
  }
};

}  // namespace

TEST_CASE("tpu: bf16 keeps weights in float, multiplies in bf16 and converts doubles to float") {
  for (const bool downcast : {false, true}) {
    CAPTURE(downcast);
    for (const bool by_variable : {false, true}) {
      if (by_variable) {
        setenv("ACCELERATE_MIXED_PRECISION", downcast ? "bf16" : "fp16",
               1);  // a TPU has only one 16-bit type
        setenv("ACCELERATE_DOWNCAST_BF16", downcast ? "true" : "false", 1);
      }
      AcceleratorOptions options{.tpu = true};
      if (!by_variable) options.mixed_precision = Precision::bf16, options.downcast_bf16 = downcast;
      Accelerator accelerator(options);
      unsetenv("ACCELERATE_MIXED_PRECISION");
      unsetenv("ACCELERATE_DOWNCAST_BF16");
      Net net;
      hasten::AdamW adamw({net->weight}, torch::optim::AdamWOptions(1e-2));
      auto rows = make_loader(Rows{}, {.batch_size = 2});
      auto [model, optimizer, loader] = accelerator.prepare(net, adamw, rows);
      CHECK((net->weight.scalar_type() == at::kFloat));
      CHECK((net->scale.scalar_type() == at::kFloat));
      for (auto& batch : loader) {
        CHECK((batch.at("x").scalar_type() == at::kFloat));
        CHECK((batch.at("time").scalar_type() == (downcast ? at::kFloat : at::kBFloat16)));
        // The targets of a loss are not rounded to bfloat16.
        CHECK((batch.at("labels").scalar_type() == at::kFloat));
        CHECK(batch.at("labels")[0].cpu().item<float>() == 1.0F / 3);
        const at::Tensor out = model(batch.at("x"));
        CHECK((net->product.scalar_type() == at::kBFloat16));
        CHECK((accelerator.gather_for_metrics(net->product).scalar_type() == at::kFloat));
        const at::Tensor loss = out.to(at::kFloat).mean();
        accelerator.backward(loss);
        CHECK((net->weight.grad().scalar_type() == at::kFloat));
        optimizer.step();
        optimizer.zero_grad();
      }
      for (const auto& [parameter, state] : adamw.state()) {
        const auto& moments = static_cast<const torch::optim::AdamWParamState&>(*state);
        CHECK((moments.exp_avg().scalar_type() == at::kFloat));
        CHECK((moments.exp_avg_sq().scalar_type() == at::kFloat));
      }
    }
  }
}

// Weights are kept in float because fine-tuning's steps are smaller than half of bfloat16's
// precision.
TEST_CASE("tpu: updates that change weights in float can be lost in bfloat16") {
  Accelerator accelerator({.tpu = true});
  torch::manual_seed(4);
  const at::Tensor start = at::randn({1000}) * 0.04;
  const auto moved_after = [&](at::ScalarType type) {
    at::Tensor weight = start.to(accelerator.device(), type).requires_grad_();
    const at::Tensor before = weight.detach().cpu();
    torch::optim::AdamW adamw({weight}, torch::optim::AdamWOptions(2e-5).weight_decay(0));
    for (int step = 0; step < 20; ++step) {
      weight.mutable_grad() = at::ones_like(weight);
      adamw.step();
    }
    return weight.detach().cpu().ne(before).to(at::kFloat).mean().item<double>();
  };
  CHECK(moved_after(at::kFloat) == 1.0);
  CHECK(moved_after(at::kBFloat16) < 0.5);
}

TEST_CASE("tpu: bf16: the optimizer state of a double weight becomes float with the weight") {
  Net net;
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(1e-2).momentum(0.9));
  const auto step_by = [&](const at::Tensor& loss) {
    loss.backward();
    sgd.step();
  };
  step_by(net->forward(at::ones({2, 8})).mean());  // on the CPU
  AcceleratorOptions options{.tpu = true};
  options.mixed_precision = Precision::bf16;
  Accelerator accelerator(options);
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  const auto& state = dynamic_cast<const torch::optim::SGDParamState&>(
      *sgd.state().at(net->scale.unsafeGetTensorImpl()));
  CHECK((state.momentum_buffer().device() == accelerator.device()));
  CHECK((state.momentum_buffer().scalar_type() == at::kFloat));
  const at::Tensor before = net->scale.detach().cpu().clone();
  optimizer.zero_grad();
  accelerator.backward(model(at::ones({2, 8}).to(accelerator.device())).to(at::kFloat).mean());
  optimizer.step();
  CHECK((net->scale.scalar_type() == at::kFloat));
  CHECK_FALSE(at::equal(net->scale.detach().cpu(), before));
}

}  // namespace tpu_precision_test
