// Compares exported models of many architectures with the results of eager PyTorch
// (tests/oracle/generate_architectures.py).
#include <doctest/doctest.h>
#include <torch/torch.h>

#include "hasten/base/files.h"
#include "hasten/exported/exported_module.h"
#include "hasten/formats/safetensors.h"
#include "oracle/architectures.h"
#include "oracle/exported_cases.h"

namespace oracle_architectures_test {

using namespace hasten;
using namespace hasten::oracle;

namespace {

constexpr std::uint64_t kSeed = 7;

// Returns the sum and the norm of a tensor.
at::Tensor digest(const at::Tensor& tensor) {
  const at::Tensor value = tensor.detach().to(at::kDouble);
  return torch::stack({value.sum(), value.norm()});
}

// The tolerance is larger after the first step: rounding errors grow from step to step, and other
// processors round differently.
double tolerance_after(std::int64_t step) { return step == 0 ? 2e-6 : 1e-3; }

// Returns the largest difference of a gradient, relative to the largest gradient of the model.
double gradient_difference(const ExportedModule& model, const TensorDict& expected) {
  double difference = 0, largest = 0;
  std::size_t compared = 0;
  for (const auto& item : model.named_parameters()) {
    if (!item.value().grad().defined()) continue;
    const at::Tensor& gradient = expected.at(item.key());
    REQUIRE(item.value().grad().sizes() == gradient.sizes());
    ++compared;
    if (gradient.numel() == 0) continue;
    largest = std::max(largest, gradient.abs().max().item<double>());
    difference = std::max(difference, (item.value().grad() - gradient).abs().max().item<double>());
  }
  CHECK(compared == expected.size());
  return largest > 0 ? difference / largest : difference;
}

// Trains as the generator does. Returns whether every number was equal.
bool train_and_compare(ExportedModule& model, const TensorDict& expected, double tolerance) {
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  torch::manual_seed(kSeed);
  const at::Tensor losses = expected.at("losses");
  bool equal = true;
  for (std::int64_t step = 0; step < losses.size(0); ++step) {
    optimizer.zero_grad();
    const TensorDict outputs = model.forward(part(expected, str("input.", step % 2, '.')));
    const at::Tensor loss = loss_of(outputs, expected.at(str("target.", step % 2)));
    loss.backward();
    check_near(str("loss ", step), loss, losses[step], tolerance_after(step));
    equal &= at::equal(loss, losses[step]);
    if (step == 0) {
      check_near("logits", logits_of(outputs), expected.at("logits"), tolerance_after(step));
      const double difference = gradient_difference(model, part(expected, "grad."));
      CHECK(difference <= tolerance);
      equal &= difference == 0;
    }
    optimizer.step();
  }
  const TensorDict final = part(expected, "final.");
  const TensorDict trained = named_tensors(model);
  CHECK(trained.size() == final.size());
  for (const auto& [name, tensor] : final) {
    check_near(name, digest(trained.at(name)), tensor, 1e-2);
    equal &= at::equal(digest(trained.at(name)), tensor);
  }
  return equal;
}

}  // namespace

TEST_CASE("exported: each architecture trains for 20 steps as in eager PyTorch") {
  REQUIRE(architectures().size() >= 40);
  std::vector<std::string> rounded;
  for (const auto& [name, entry] : architectures().items()) {
    CAPTURE(name);
    const TensorDict expected = load_safetensors(kArchitectures / (name + ".safetensors"));
    const auto model = load_exported(kArchitectures / (name + ".pt2"));
    const double tolerance = entry.value("gradient_tolerance", 2e-5);
    if (!train_and_compare(*model, expected, tolerance)) rounded.push_back(name);
    const torch::NoGradGuard no_grad;
    if (entry.contains("evaluation")) continue;  // the entry says why the evaluation differs
    model->eval();
    check_near("eval logits", logits_of(model->forward(part(expected, "input.0."))),
               expected.at("eval_logits"), 5e-2);
  }
  // On the processor that recorded the data, these models are not equal to the last bit.
  MESSAGE("not equal to the last bit: " << (rounded.empty() ? "none" : join(rounded, ", ")));
}

TEST_CASE("exported: each architecture is saved and read again") {
  for (const auto& [name, entry] : architectures().items()) {
    CAPTURE(name);
    const TemporaryDirectory scratch;
    const TensorDict expected = load_safetensors(kArchitectures / (name + ".safetensors"));
    const auto model = load_exported(kArchitectures / (name + ".pt2"));
    {
      const torch::NoGradGuard no_grad;
      for (at::Tensor& parameter : model->parameters()) parameter.mul_(1.5);
    }
    model->save(scratch.path() / "model.pt2");
    const auto again = load_exported(scratch.path() / "model.pt2");
    const TensorDict before = named_tensors(*model), after = named_tensors(*again);
    REQUIRE(before.size() == after.size());
    for (const auto& [key, tensor] : before) CHECK(at::equal(tensor, after.at(key)));
  }
}

}  // namespace oracle_architectures_test
