// Compares a step with the same step after one change at a time.
#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "device/host_traffic.h"
#include "hasten/base/error.h"
#include "hasten/plan/plan.h"
#include "plan/step_model.h"
#include "plan/techniques.h"
#include "unit/plan/planned_steps.h"

namespace plan_step_comparison_test {

using namespace hasten;
using namespace hasten::planned_steps;

TEST_CASE("plan: a comparison has every technique, with the cost of its own estimate") {
  const SmallModel model;
  PlanOptions options{.step = {.model = model.file(), .length = 64, .device = "cuda:t4"}};
  const anatomy::StepComparison comparison = compare_changes(options);
  REQUIRE(comparison.changes.size() == techniques().size() + 2);  // half the batch, half the length
  CHECK(comparison.baseline.bytes == needed_bytes(estimate(options.step).memory));
  const auto needed = [&](const char* name) {
    return needed_bytes(estimate(with_settings(options.step, find_technique(name).sets)).memory);
  };
  for (const char* name : {"adamw_8bit", "recompute", "offload_states"}) {
    CAPTURE(name);
    CHECK(change_of(comparison, name).rejection_reason.empty());
    CHECK(change_of(comparison, name).cost.bytes == needed(name));
  }
  CHECK(change_of(comparison, "bf16").rejection_reason == "cuda:t4 has no bfloat16");
  CHECK(change_of(comparison, "sdpa").rejection_reason == "the step already uses it");
  CHECK(change_of(comparison, "step_in_backward").rejection_reason.find("max_grad_norm") !=
        std::string::npos);
  CHECK(change_of(comparison, "lion_8bit").exactness == Exactness::other);
  const nlohmann::json json = nlohmann::json::parse(to_json(comparison));
  CHECK(json["changes"].size() == comparison.changes.size());
  CHECK(json["bytes"] == comparison.baseline.bytes);
  options.step.device = "cpu";
  options.budget = 0;
  CHECK(change_of(compare_changes(options), "offload_activations").rejection_reason ==
        "on the CPU everything is in the host's memory already");
}

TEST_CASE("plan: the device's model says which techniques it predicts") {
  PlanOptions options{.step = {.device = "tpu:v5e:2x2"}};
  const auto reason = [&](const char* name) {
    return exclusion_reason(options, find_technique(name));
  };
  CHECK(reason("bf16").empty());
  CHECK(reason("sgd").empty());
  CHECK(reason("offload_states") == "hasten does not predict it for a TPU");
  CHECK_FALSE(make_step_model(options)->adds_equal_micro_batches());
  options.step.device = "cuda:t4";
  CHECK(reason("offload_states").empty());
  CHECK(make_step_model(options)->adds_equal_micro_batches());
  options.step.mode = EstimateMode::inference;
  CHECK(reason("sgd") == "it affects only training");
}

TEST_CASE("plan: a comparison has half the batch and half the length, if they can change") {
  const SmallModel model;
  PlanOptions options{.step = {.model = model.file(),
                               .length = 64,
                               .arguments = {.per_device_train_batch_size = 4},
                               .device = "cuda:t4"}};
  const anatomy::StepComparison comparison = compare_changes(options);
  EstimateOptions half = options.step;
  half.arguments.per_device_train_batch_size = 2;
  half.arguments.gradient_accumulation_steps = 2;
  CHECK(change_of(comparison, "batches of 2 rows, 2 in a step").cost.bytes ==
        needed_bytes(estimate(half).memory));
  EstimateOptions shorter = options.step;
  shorter.length = 32;
  CHECK(change_of(comparison, "rows of 32 tokens").cost.bytes ==
        needed_bytes(estimate(shorter).memory));
  CHECK(change_of(comparison, "rows of 32 tokens").exactness == Exactness::other);
  options.step.length = 1;
  options.step.arguments.per_device_train_batch_size = 1;
  CHECK(compare_changes(options).changes.size() == techniques().size());
}

TEST_CASE("plan: half of an odd batch is a step with fewer rows") {
  PlanOptions options = options_of(0);
  options.step.arguments.per_device_train_batch_size = 3;
  const anatomy::StepComparison odd = compare_changes(options);
  CHECK(change_of(odd, "batches of 1 row, 2 in a step").exactness == Exactness::other);
  CHECK(change_of(odd, "batches of 1 row, 2 in a step").effect.find("fewer rows") !=
        std::string::npos);
  options.step.arguments.per_device_train_batch_size = 4;
  const anatomy::StepComparison even = compare_changes(options);
  CHECK(change_of(even, "batches of 2 rows, 2 in a step").exactness == Exactness::exact);
}

TEST_CASE("plan: a comparison has the reason of the model's refusal, for any accumulation") {
  PlanOptions options = options_of(0);
  options.predictor = [](const PlanSettings& settings, std::int64_t rows,
                         std::int64_t accumulation) -> StepCost {
    if (sets(settings, "activation_checkpointing", "true"))
      throw UsageError("models.no-recomputation", {.what = "a model without layers"});
    return cost_of(settings, rows, accumulation);
  };
  for (const std::int64_t accumulation : {1, 3, 4, 16}) {
    CAPTURE(accumulation);
    options.step.arguments.gradient_accumulation_steps = accumulation;
    const anatomy::StepComparison comparison = compare_changes(options);
    CHECK(change_of(comparison, "recompute").rejection_reason.find("without layers") !=
          std::string::npos);
  }
}

TEST_CASE("plan: a comparison announces the changes that it predicts, and no others") {
  const SmallModel model;
  const PlanOptions options{.step = {.model = model.file(), .length = 64, .device = "cuda:t4"}};
  std::vector<std::string> announced;
  const anatomy::StepComparison comparison =
      compare_changes(options, [&](const std::string& name) { announced.push_back(name); });
  const auto is_announced = [&](const std::string& name) {
    return std::find(announced.begin(), announced.end(), name) != announced.end();
  };
  CHECK(is_announced("adamw_8bit"));
  CHECK(is_announced("rows of 32 tokens"));
  for (const anatomy::StepChange& each : comparison.changes) {
    CAPTURE(each.name);
    if (each.rejection_reason.empty()) CHECK(is_announced(each.name));
  }
  for (const char* refused : {"bf16", "sdpa", "step_in_backward"}) {
    CAPTURE(refused);
    CHECK_FALSE(is_announced(refused));
  }
}

TEST_CASE("plan: a comparison removes the techniques that the step uses unless they are defaults") {
  const SmallModel model;
  PlanOptions options{.step = {.model = model.file(), .length = 64, .device = "cuda:a100-40gb"}};
  const EstimateOptions plain = options.step;
  options.step.arguments.bf16 = true;
  options.step.arguments.activation_checkpointing = true;
  options.step.arguments.activation_checkpointing_kwargs.set("policy", "selective");
  const anatomy::StepComparison comparison = compare_changes(options);
  EstimateOptions in_float = options.step, kept = options.step;
  in_float.arguments.bf16 = false;
  kept.arguments.activation_checkpointing = false;
  kept.arguments.activation_checkpointing_kwargs = {};
  CHECK(change_of(comparison, "without bf16").cost.bytes ==
        needed_bytes(estimate(in_float).memory));
  CHECK(change_of(comparison, "without recompute_cheap").cost.bytes ==
        needed_bytes(estimate(kept).memory));
  CHECK(change_of(comparison, "recompute").rejection_reason == "the step already uses it");
  CHECK_FALSE(has_change(comparison, "without sdpa"));
  // Without recomputation its options are removed too, even if no technique sets them.
  options.step.arguments.activation_checkpointing_kwargs = {{"every_n_layers", 3}};
  CHECK(change_of(compare_changes(options), "without recompute").cost.bytes ==
        needed_bytes(estimate(kept).memory));
}

TEST_CASE("plan: to leave out a technique is as exact as to add it") {
  PlanOptions options = options_of(0);
  options.step.arguments.optim = OptimizerName::adamw_8bit;
  CHECK(change_of(compare_changes(options), "without adamw_8bit").exactness == Exactness::rounding);
  // The default optimizer is another algorithm than Lion.
  options.step.arguments.optim = OptimizerName::lion_8bit;
  CHECK(change_of(compare_changes(options), "without lion_8bit").exactness == Exactness::other);
}

TEST_CASE("plan: a comparison of inferences has what changes the forward pass") {
  const SmallModel model;
  const PlanOptions options{.step = {.model = model.file(),
                                     .length = 64,
                                     .mode = EstimateMode::inference,
                                     .arguments = {.per_device_train_batch_size = 4},
                                     .device = "cuda:t4"}};
  const anatomy::StepComparison comparison = compare_changes(options);
  CHECK(comparison.baseline.bytes == needed_bytes(estimate(options.step).memory));
  CHECK(change_of(comparison, "fp16").rejection_reason.empty());
  CHECK(change_of(comparison, "sgd").rejection_reason == "it affects only training");
  EstimateOptions half = options.step;
  half.arguments.per_device_train_batch_size = 2;
  CHECK(change_of(comparison, "batches of 2 rows, 1 in a step").cost.bytes ==
        needed_bytes(estimate(half).memory));
}

}  // namespace plan_step_comparison_test
