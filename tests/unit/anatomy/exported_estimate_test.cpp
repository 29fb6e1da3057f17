// Predictions for exported programs.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <set>
#include <string>

#include "hasten/accelerator.h"
#include "hasten/base/text.h"
#include "hasten/exported/exported_module.h"
#include "hasten/plan/plan.h"
#include "hasten/trainer/estimate.h"
#include "unit/anatomy/same_memory.h"
#include "unit/code_of.h"

namespace anatomy_exported_estimate_test {

using namespace hasten;

namespace {

const std::filesystem::path kModels = HASTEN_TEST_DATA "/oracle/data/exported";

EstimateOptions options_for(const std::string& name) {
  EstimateOptions options{.model = (kModels / (name + ".pt2")).string(), .length = 6};
  options.arguments.per_device_train_batch_size = 4;
  options.arguments.max_grad_norm = 1e-3;  // clipping depends on the norm; here it always clips
  return options;
}

void check_equal(EstimateOptions options) {
  const anatomy::Memory predicted = estimate(options).memory;
  options.dry = false;
  check_same_memory(predicted, estimate(options).memory);
}

}  // namespace

TEST_CASE("exported estimate: the memory of a step is predicted to the byte") {
  for (const std::string name : {"mlp", "cnn", "transformer", "tied", "frozen"}) {
    CAPTURE(name);
    for (const bool bf16 : {false, true}) {
      CAPTURE(bf16);
      EstimateOptions options = options_for(name);
      options.arguments.bf16 = bf16;
      check_equal(options);
      options.arguments.optim = OptimizerName::sgd;
      options.arguments.gradient_accumulation_steps = 2;
      check_equal(options);
      options.mode = EstimateMode::inference;
      check_equal(options);
    }
  }
}

TEST_CASE("exported estimate: recomputed modules are predicted to the byte") {
  for (const std::string policy : {"full", "selective"}) {
    for (const bool bf16 : {false, true}) {
      CAPTURE(policy);
      CAPTURE(bf16);
      EstimateOptions options = options_for("transformer");
      options.arguments.bf16 = bf16;
      const std::int64_t plain = estimate(options).memory.max_bytes[3];
      options.arguments.activation_checkpointing = true;
      options.arguments.activation_checkpointing_kwargs = {{"modules", "*"}, {"policy", policy}};
      check_equal(options);
      CHECK(estimate(options).memory.max_bytes[3] != plain);
    }
  }
}

TEST_CASE("exported estimate: operations belong to the modules of the export") {
  const auto net = load_exported(kModels / "transformer.pt2");
  Accelerator accelerator({.cpu = true});
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  Anatomy anatomy = accelerator.anatomy({.steps = 1});
  const at::Tensor ids = torch::ones({4, 6}, at::kLong), labels = torch::ones({4}, at::kLong);
  accelerator.backward(
      model(TensorDict{{"input_ids", ids}, {"attention_mask", ids}, {"labels", labels}})
          .at("loss"));
  optimizer.step();
  anatomy.step();
  std::set<std::string> forward, backward;
  for (const anatomy::Operation& row : anatomy.report().operations) {
    if (row.phase == anatomy::Phase::forward) forward.insert(row.module);
    if (row.phase == anatomy::Phase::backward) backward.insert(row.module);
  }
  for (const std::string name :
       {"embed", "positions", "norm1", "qkv", "out", "up", "down", "head"}) {
    CAPTURE(name);
    CHECK(forward.contains(name));
    CHECK(backward.contains(name));
  }
}

TEST_CASE("exported estimate: sizes that the export does not allow are refused") {
  EstimateOptions options = options_for("frozen");  // a batch of four
  options.arguments.per_device_train_batch_size = 8;
  CHECK(code_of([&] { estimate(options); }) == "exported.inputs");
  options = options_for("mlp");
  options.arguments.per_device_train_batch_size = 65;
  CHECK(code_of([&] { estimate(options); }) == "exported.inputs");
}

TEST_CASE("exported estimate: a step is predicted for a simulated GPU, and changes are compared") {
  EstimateOptions options = options_for("transformer");
  options.device = "cuda:v100-16gb";
  const anatomy::Memory memory = estimate(options).memory;
  CHECK(memory.peak > 4 * memory.parameters);
  // The length of the export is fixed.
  options.device = "cpu";
  const anatomy::StepComparison comparison = compare_changes({.step = options, .budget = 0});
  CHECK(comparison.changes.size() > 10);
  for (const anatomy::StepChange& each : comparison.changes)
    CHECK(each.name.find("tokens") == std::string::npos);
}

}  // namespace anatomy_exported_estimate_test
