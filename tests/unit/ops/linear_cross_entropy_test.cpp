#include <ATen/autocast_mode.h>
#include <doctest/doctest.h>
#include <torch/torch.h>

#include "hasten/accelerator.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/ops/ops.h"
#include "hasten/prepare/detail/autocast.h"
#include "unit/anatomy/same_memory.h"

namespace ops_linear_cross_entropy_test {

using namespace hasten;

namespace {

struct Loss {
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;
  bool mean = true;
};

struct Inputs {
  at::Tensor hidden, weight, bias, labels;

  Inputs(std::int64_t rows, std::int64_t classes, std::int64_t in,
         at::ScalarType type = at::kFloat) {
    torch::manual_seed(rows + classes);
    const auto options = at::TensorOptions().dtype(type);
    hidden = torch::randn({rows, in}, options);
    weight = torch::randn({classes, in}, options) / std::sqrt(static_cast<double>(in));
    bias = torch::randn({classes}, options);
    labels = at::randint(classes, {rows}, at::kLong);
    labels.masked_fill_(at::rand({rows}).lt(0.3), -100);
    for (at::Tensor* const each : {&hidden, &weight, &bias})
      *each = each->detach().requires_grad_();
  }
  std::vector<at::Tensor> leaves() const { return {hidden, weight, bias}; }
};

at::Tensor fused_loss(const Inputs& in, const Loss& loss) {
  return ops::linear_cross_entropy(in.hidden, in.weight, in.bias, in.labels, loss.ignore_index,
                                   loss.label_smoothing, loss.mean);
}

at::Tensor reference_loss(const Inputs& in, const Loss& loss) {
  return at::cross_entropy_loss(at::linear(in.hidden, in.weight, in.bias), in.labels, {},
                                loss.mean ? at::Reduction::Mean : at::Reduction::Sum,
                                loss.ignore_index, loss.label_smoothing);
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  const double scale = std::max(1e-6, b.abs().max().item<double>());
  return (a - b).abs().max().item<double>() / scale;
}

void check_equal(const Inputs& in, const Loss& loss, double tolerance) {
  const at::Tensor a = fused_loss(in, loss), b = reference_loss(in, loss);
  CHECK((a.scalar_type() == b.scalar_type()));
  CHECK(difference(a, b) <= tolerance);
  const auto of_fused = torch::autograd::grad({a * 3}, in.leaves()),
             of_whole = torch::autograd::grad({b * 3}, in.leaves());
  for (std::size_t i = 0; i < of_fused.size(); ++i) {
    CAPTURE(i);
    CHECK(difference(of_fused[i], of_whole[i]) <= tolerance);
  }
}

}  // namespace

TEST_CASE("linear cross entropy: loss and gradients equal those of whole logits") {
  for (const bool mean : {true, false}) {
    for (const double smoothing : {0.0, 0.1, 1.0}) {
      CAPTURE(mean);
      CAPTURE(smoothing);
      check_equal({37, 101, 16}, {.label_smoothing = smoothing, .mean = mean}, 1e-5);
      check_equal({1, 3, 2}, {.label_smoothing = smoothing, .mean = mean}, 1e-5);
      check_equal({37, 101, 16, at::kDouble}, {.label_smoothing = smoothing, .mean = mean}, 1e-12);
    }
  }
  Inputs other(20, 9, 4);
  other.labels.clamp_min_(0);
  check_equal(other, {.ignore_index = 3}, 1e-5);
}

TEST_CASE("linear cross entropy: logits in several parts add up") {
  // 64 MiB hold 838 rows of 20,000 classes.
  check_equal({1000, 20000, 4}, {}, 2e-5);
  check_equal({1000, 20000, 4}, {.label_smoothing = 0.1, .mean = false}, 2e-5);
}

TEST_CASE("linear cross entropy: large logits and unlikely labels stay finite") {
  Inputs in(8, 50, 4);
  const torch::NoGradGuard no_grad;
  in.weight.mul_(200);
  in.labels.clamp_min_(0);
  CHECK(difference(fused_loss(in, {}), reference_loss(in, {})) <= 1e-6);
}

TEST_CASE("linear cross entropy: without labels the loss is not a number and gradients are 0") {
  Inputs in(4, 5, 3);
  in.labels.fill_(-100);
  const at::Tensor loss = fused_loss(in, {});
  CHECK(std::isnan(loss.item<double>()));
  for (const at::Tensor& gradient : torch::autograd::grad({loss}, in.leaves()))
    CHECK(gradient.abs().max().item<double>() == 0);
  CHECK(fused_loss(in, {.mean = false}).item<double>() == 0);
}

TEST_CASE("linear cross entropy: only the gradients that are needed are computed") {
  Inputs in(10, 30, 4);
  in.weight.requires_grad_(false);
  const auto expected = torch::autograd::grad({reference_loss(in, {})}, {in.hidden, in.bias});
  const auto found = torch::autograd::grad({fused_loss(in, {})}, {in.hidden, in.bias});
  CHECK(difference(found[0], expected[0]) <= 1e-5);
  CHECK(difference(found[1], expected[1]) <= 1e-5);
  CHECK_FALSE(in.weight.grad().defined());
  const at::Tensor without_bias = ops::linear_cross_entropy(in.hidden, in.weight, {}, in.labels);
  CHECK(difference(without_bias,
                   at::cross_entropy_loss(at::linear(in.hidden, in.weight), in.labels)) <= 1e-5);
  const torch::NoGradGuard no_grad;
  CHECK(difference(fused_loss(in, {}), reference_loss(in, {})) <= 1e-5);
}

TEST_CASE("linear cross entropy: a graph that is kept gives the same gradients again") {
  const Inputs in(40, 60, 8);
  const at::Tensor loss = fused_loss(in, {});
  const auto once = torch::autograd::grad({loss}, in.leaves(), {}, /*retain_graph=*/true),
             again = torch::autograd::grad({loss}, in.leaves());
  for (std::size_t i = 0; i < once.size(); ++i) CHECK(at::equal(once[i], again[i]));
}

TEST_CASE("linear cross entropy: gradients can be differentiated") {
  const Inputs in(6, 7, 3, at::kDouble);
  const auto second = [&](const at::Tensor& loss) {
    at::Tensor sum;
    for (const at::Tensor& each : torch::autograd::grad({loss}, in.leaves(), {}, true, true)) {
      const at::Tensor square = each.pow(2).sum();
      sum = sum.defined() ? sum + square : square;
    }
    return torch::autograd::grad({sum}, in.leaves());
  };
  const auto found = second(fused_loss(in, {})), expected = second(reference_loss(in, {}));
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(difference(found[i], expected[i]) <= 1e-10);
}

TEST_CASE("linear cross entropy: a tied table gets both gradients") {
  const at::Tensor table = torch::randn({30, 8}).requires_grad_();
  const at::Tensor ids = at::randint(30, {12}, at::kLong),
                   labels = at::randint(30, {12}, at::kLong);
  const auto hidden = [&] { return at::tanh(at::embedding(table, ids)); };
  const auto found =
      torch::autograd::grad({ops::linear_cross_entropy(hidden(), table, {}, labels)}, {table});
  const auto expected =
      torch::autograd::grad({at::cross_entropy_loss(at::linear(hidden(), table), labels)}, {table});
  CHECK(difference(found[0], expected[0]) <= 1e-5);
}

TEST_CASE("linear cross entropy: under autocast products have its type and sums are float") {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    CAPTURE(c10::toString(type));
    const Inputs in(64, 300, 16);
    const at::Tensor expected = reference_loss(in, {});
    const auto of_whole = torch::autograd::grad({expected}, in.leaves());
    at::autocast::set_autocast_dtype(at::kCPU, type);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const at::Tensor loss = fused_loss(in, {});
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::clear_cache();
    CHECK((loss.scalar_type() == at::kFloat));
    CHECK(difference(loss, expected) <= 1e-2);
    const auto gradients = torch::autograd::grad({loss}, in.leaves());
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      CHECK((gradients[i].scalar_type() == at::kFloat));
      CHECK(difference(gradients[i], of_whole[i]) <= 3e-2);
    }
  }
}

TEST_CASE("linear cross entropy: sums over many rows do not overflow in float16") {
  Inputs in(2048, 2, 4);
  in.labels.zero_();
  {
    const torch::NoGradGuard no_grad;
    in.hidden.fill_(
        100);  // with two classes, each row adds -50 to the gradient of the first weight
    in.weight.zero_();
    in.bias.zero_();
  }
  const AutocastGuard guard(Precision::fp16, at::kCPU);
  const auto gradients = torch::autograd::grad({fused_loss(in, {})}, in.leaves());
  CHECK(gradients[1].add(at::tensor({50.0f, -50.0f}).unsqueeze(1)).abs().max().item<double>() <
        0.1);
}

TEST_CASE("linear cross entropy: wrong shapes and labels are refused") {
  Inputs in(4, 5, 3);
  const auto refuses = [](auto call) {
    try {
      call();
    } catch (const c10::Error& error) {
      return std::string(error.what()).find("linear_cross_entropy") != std::string::npos;
    }
    return false;
  };
  CHECK(refuses([&] { ops::linear_cross_entropy(in.hidden, in.weight.t(), {}, in.labels); }));
  CHECK(refuses([&] { ops::linear_cross_entropy(in.hidden, in.weight, in.bias, in.labels[0]); }));
  CHECK(refuses([&] { ops::linear_cross_entropy(in.hidden, in.weight, in.hidden[0], in.labels); }));
  in.labels[1] = 5;
  CHECK(refuses([&] { fused_loss(in, {}); }));
}

TEST_CASE("linear cross entropy: the memory of a step is predicted to the byte") {
  const auto step = [](bool dry, bool is_fused) {
    std::optional<DryRun> run;
    if (dry) run.emplace();
    struct Head : torch::nn::Module {
      at::Tensor weight = register_parameter("weight", torch::zeros({20000, 8}));
      at::Tensor bias = register_parameter("bias", torch::zeros({20000}));
    };
    const auto head = std::make_shared<Head>();
    Accelerator accelerator({.cpu = true});
    torch::optim::SGD sgd(head->parameters(), 0.1);
    auto [model, optimizer] = accelerator.prepare(head, sgd);
    Anatomy anatomy = accelerator.anatomy({.steps = 2});
    for (int i = 0; i < 2; ++i) {
      const at::Tensor hidden = torch::zeros({900, 8}), labels = torch::zeros({900}, at::kLong);
      accelerator.backward(model.call([&](Head& module) {
        return is_fused ? ops::linear_cross_entropy(hidden, module.weight, module.bias, labels)
                        : at::cross_entropy_loss(ops::linear(hidden, module.weight, module.bias),
                                                 labels);
      }));
      optimizer.step();
      optimizer.zero_grad();
    }
    return anatomy.report();
  };
  const anatomy::Memory predicted = step(true, true).memory, measured = step(false, true).memory;
  check_same_memory(predicted, measured);
  const std::int64_t logits = std::int64_t{900} * 20000 * 4;
  CHECK(measured.peak < 1.1 * static_cast<double>(logits));
  CHECK(step(false, false).memory.peak > 2 * logits);
  // Each of the two steps counts 6 operations for each logit.
  double flops = 0;
  for (const anatomy::Operation& each : step(true, true).operations)
    if (each.name == "hasten::cross_entropy") flops += each.flops;
  CHECK(flops == 6.0 * 900 * 20000 * 2);
}

}  // namespace ops_linear_cross_entropy_test
