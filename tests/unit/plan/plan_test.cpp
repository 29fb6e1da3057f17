// Plans for steps whose costs are given by formulas, and for a small model with dry runs.
#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "device/host_traffic.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/options/train_options.h"
#include "hasten/plan/plan.h"
#include "plan/techniques.h"
#include "unit/code_of.h"
#include "unit/plan/planned_steps.h"

namespace plan_plan_test {

using namespace hasten;
using namespace hasten::planned_steps;

TEST_CASE("plan: the requested step is kept if it fits and nothing is faster") {
  PlanOptions options = options_of(4000 * kMiB);
  options.avoid = {"bf16"};
  const StepPlan plan = plan_step(options);
  CHECK(plan.techniques.empty());
  CHECK(plan.rows == 16);
  CHECK(plan.accumulation == 1);
  CHECK(plan.stages.size() == 1);
  CHECK(plan.next_rows == 0);
}

TEST_CASE("plan: the plan is as fast as the fastest of all combinations") {
  for (const std::int64_t memory : {450, 700, 1300}) {
    for (const bool keep : {true, false}) {
      for (const Exactness exactness : {Exactness::exact, Exactness::rounding, Exactness::other}) {
        CAPTURE(memory);
        CAPTURE(keep);
        PlanOptions options = options_of(memory * kMiB);
        options.keep_effective_batch = keep;
        options.exactness = exactness;
        double best = 1e9;
        for (const auto& set : combinations(options)) {
          PlanSettings settings;
          for (const Technique* each : set)
            settings.insert(settings.end(), each->sets.begin(), each->sets.end());
          for (const std::int64_t rows : {1, 2, 3, 4, 6, 8, 12, 16}) {
            const std::int64_t accumulation = 16 / rows;
            if (keep && rows * accumulation != 16) continue;
            const StepCost cost = cost_of(settings, rows, accumulation);
            if (cost.bytes <= memory * kMiB)
              best = std::min(best, cost.seconds / static_cast<double>(rows * accumulation));
          }
        }
        if (best == 1e9) {
          CHECK(code_of([&] { plan_step(options); }) == "plan.too-small");
          continue;
        }
        const StepPlan plan = plan_step(options);
        const double found = plan.cost.seconds / static_cast<double>(plan.rows * plan.accumulation);
        CHECK(found <= best * 1.1 * 1.021);  // a less exact plan must be clearly faster
        CHECK(plan.cost.bytes <= plan.memory);
        CHECK(plan.stages.back().cost.bytes == plan.cost.bytes);
        if (keep) CHECK(plan.rows * plan.accumulation == 16);
        if (plan.next_rows > 0) CHECK(plan.next_bytes > plan.memory);
      }
    }
  }
}

TEST_CASE("plan: the requested step with accumulation is kept if it fits") {
  PlanOptions options = options_of(700 * kMiB);
  options.step.arguments.per_device_train_batch_size = 4;
  options.step.arguments.gradient_accumulation_steps = 6;
  options.keep_effective_batch = false;
  options.exactness = Exactness::exact;
  const StepPlan plan = plan_step(options);
  CHECK(plan.rows * plan.accumulation == 24);
  CHECK(plan.cost.seconds <= cost_of({}, 4, 6).seconds);
}

TEST_CASE("plan: a less exact technique must save more time than the error of a prediction") {
  for (const double time : {0.97, 0.9}) {
    CAPTURE(time);
    PlanOptions options = options_of(4000 * kMiB);
    options.predictor = [time](const PlanSettings& settings, std::int64_t rows,
                               std::int64_t accumulation) {
      StepCost cost = cost_of({}, rows, accumulation);
      if (sets(settings, "optim", "adamw_8bit")) cost.seconds *= time;
      return cost;
    };
    CHECK(plan_step(options).techniques ==
          (time > 0.95 ? std::vector<std::string>{} : std::vector<std::string>{"adamw_8bit"}));
  }
}

TEST_CASE("plan: an 8-bit optimizer counts as rounding only if it replaces its 32-bit optimizer") {
  const auto has = [](OptimizerName optim, const char* name) {
    PlanOptions options = options_of(4000 * kMiB);
    options.step.arguments.optim = optim;
    const std::vector<TechniqueSet> all = combinations(options);
    return std::any_of(all.begin(), all.end(), [&](const TechniqueSet& set) {
      return std::count(set.begin(), set.end(), &find_technique(name)) > 0;
    });
  };
  CHECK(has(OptimizerName::adamw_torch, "adamw_8bit"));
  CHECK(has(OptimizerName::adamw_torch_fused, "adamw_8bit"));
  CHECK_FALSE(has(OptimizerName::sgd, "adamw_8bit"));
  CHECK_FALSE(has(OptimizerName::adamw_torch, "lion_8bit"));
  CHECK(has(OptimizerName::lion_32bit, "lion_8bit"));
  CHECK_FALSE(has(OptimizerName::lion_32bit, "adamw_8bit"));
}

TEST_CASE("plan: the recomputation that the options have chosen is kept") {
  PlanOptions options = options_of(4000 * kMiB);
  options.step.arguments.activation_checkpointing = true;
  options.step.arguments.activation_checkpointing_kwargs = {{"policy", "selective"}};
  for (const TechniqueSet& set : combinations(options))
    for (const Technique* each : set) CHECK(each->group != "recomputation");
}

TEST_CASE("plan: a combination is found even if it needs less memory than the sum of effects") {
  PlanOptions options = options_of(150 * kMiB);
  options.predictor = [](const PlanSettings& settings, std::int64_t rows,
                         std::int64_t accumulation) {
    StepCost cost = cost_of({}, rows, accumulation);
    const bool both = sets(settings, "bf16", "true") && sets(settings, "optim", "adamw_8bit");
    cost.bytes = (both ? 100 : 400 + rows) * kMiB;
    return cost;
  };
  CHECK(plan_step(options).techniques == std::vector<std::string>{"bf16", "adamw_8bit"});
}

TEST_CASE("plan: a larger batch without accumulation may need less than a smaller one with it") {
  PlanOptions options = options_of(500 * kMiB);
  options.exactness = Exactness::exact;
  options.predictor = [](const PlanSettings&, std::int64_t rows, std::int64_t accumulation) {
    StepCost cost = cost_of({}, rows, accumulation);
    cost.bytes = (400 + rows + (accumulation > 1 ? 200 : 0)) * kMiB;
    return cost;
  };
  const StepPlan plan = plan_step(options);
  CHECK(plan.rows == 16);
  CHECK(plan.accumulation == 1);
}

TEST_CASE("plan: stages whose technique takes no accumulation follow the change of the batch") {
  PlanOptions options = options_of(4000 * kMiB);
  options.step.arguments.per_device_train_batch_size = 2;
  options.step.arguments.gradient_accumulation_steps = 8;
  options.step.arguments.max_grad_norm = 0;
  options.use = {"step_in_backward"};
  options.avoid = {"bf16", "fp16", "bf16_weights"};
  options.predictor = [](const PlanSettings& settings, std::int64_t rows,
                         std::int64_t accumulation) {
    if (sets(settings, "step_in_backward", "true") && accumulation > 1)
      throw ConfigError("config.contradiction", {.what = "step_in_backward"});
    return cost_of(settings, rows, accumulation);
  };
  const StepPlan plan = plan_step(options);
  REQUIRE(plan.stages.size() == 3);
  CHECK(plan.stages[1].change == "batches of 16 rows, 1 in a step");
  CHECK(plan.stages[2].change == "step_in_backward");
  for (const PlanStage& each : plan.stages) CHECK(each.cost.bytes < 4000 * kMiB);
}

TEST_CASE("plan: the next larger batch is one that the model takes") {
  PlanOptions options = options_of(4000 * kMiB);
  options.use = {"bf16", "adamw_8bit"};
  options.predictor = [](const PlanSettings& settings, std::int64_t rows,
                         std::int64_t accumulation) {
    const bool both = sets(settings, "bf16", "true") && sets(settings, "optim", "adamw_8bit");
    if (both && rows == 16) throw UsageError("models.batch", {.what = "a batch of 16 rows"});
    return cost_of(settings, rows, accumulation);
  };
  const StepPlan plan = plan_step(options);
  CHECK(plan.rows == 8);
  CHECK(plan.next_rows == 0);
  CHECK(plan.next_bytes == 0);
}

TEST_CASE("plan: a technique that the model does not take is an error only if it has to be used") {
  PlanOptions options = options_of(4000 * kMiB);
  options.predictor = [](const PlanSettings& settings, std::int64_t rows,
                         std::int64_t accumulation) {
    if (sets(settings, "activation_checkpointing", "true"))
      throw UsageError("models.no-recomputation", {.what = "a model without layers"});
    return cost_of(settings, rows, accumulation);
  };
  CHECK(plan_step(options).rows == 16);
  options.use = {"recompute"};
  try {
    plan_step(options);
    FAIL("expected an error");
  } catch (const ConfigError& error) {
    CHECK(error.code() == "plan.contradiction");
    CHECK(std::string(error.what()).find("a model without layers") != std::string::npos);
  }
}

TEST_CASE("plan: accumulation may need more memory than a whole step") {
  // The predictor imitates a model with an embedding as its largest weight. The gradient of an
  // embedding has only the rows of one batch.
  PlanOptions options = options_of(400 * kMiB);
  options.keep_effective_batch = true;
  options.predictor = [](const PlanSettings& settings, std::int64_t rows,
                         std::int64_t accumulation) {
    const std::int64_t dense = accumulation > 1 ? 100 : 0,
                       less = sets(settings, "bf16", "true") ? 20 : 0;
    return StepCost{
        .bytes = (320 + dense + 4 * rows - less) * kMiB,
        .seconds = 1e-3 * static_cast<double>(accumulation) * (10 + 2 * static_cast<double>(rows))};
  };
  const StepPlan plan = plan_step(options);
  CHECK(plan.rows == 16);
  CHECK(plan.techniques.empty());
  options.memory = 300 * kMiB;
  try {
    plan_step(options);
    FAIL("expected an error");
  } catch (const MemoryError& error) {
    CHECK_MESSAGE(std::string(error.what()).find("batches of 16") != std::string::npos,
                  error.what());
  }
}

TEST_CASE("plan: a limit that is too small names the least that any combination needs") {
  try {
    plan_step(options_of(300 * kMiB));
    FAIL("expected an error");
  } catch (const MemoryError& error) {
    const std::string text = error.what();
    CHECK(error.code() == "plan.too-small");
    CHECK_MESSAGE(text.find("expected at least 451 MB") != std::string::npos, text);
    CHECK_MESSAGE(text.find("with bf16") != std::string::npos, text);
    CHECK_MESSAGE(text.find("--exactness other") != std::string::npos, text);
  }
  PlanOptions options = options_of(100 * kMiB);
  options.process = 200 * kMiB;
  CHECK(code_of([&] { plan_step(options); }) == "plan.too-small");
}

TEST_CASE("plan: techniques that contradict each other are named") {
  PlanOptions options = options_of(4000 * kMiB);
  options.use = {"adafactor", "sgd"};
  try {
    plan_step(options);
    FAIL("expected an error");
  } catch (const ConfigError& error) {
    CHECK(error.code() == "plan.contradiction");
    CHECK(std::string(error.what()).find("adafactor and sgd") != std::string::npos);
  }
  options.use = {"adafactor"};
  options.avoid = {"adafactor"};
  CHECK(code_of([&] { plan_step(options); }) == "plan.contradiction");
  options.use = {"magic"};
  CHECK(code_of([&] { plan_step(options); }) == "plan.unknown-technique");
  options.use = {"sgd"};
  options.avoid = {};
  CHECK(plan_step(options).techniques.front() != "adafactor");
  const auto& used = plan_step(options).techniques;
  CHECK(std::find(used.begin(), used.end(), "sgd") != used.end());
}

TEST_CASE("plan: the YAML has what differs from the defaults") {
  PlanOptions options = options_of(700 * kMiB);
  options.step.arguments.learning_rate = 0.5;
  const StepPlan plan = plan_step(options);
  const std::string yaml = to_yaml(plan);
  CHECK(yaml.find("learning_rate: 0.5\n") != std::string::npos);
  CHECK(yaml.find("bf16: true\n") != std::string::npos);
  CHECK(yaml.find(str("per_device_train_batch_size: ", plan.rows, "\n")) != std::string::npos);
  CHECK(yaml.find("weight_decay") == std::string::npos);
  CHECK(nlohmann::json::parse(to_json(plan))["rows"] == plan.rows);
  CHECK(to_text(plan).find("as asked") != std::string::npos);
}

TEST_CASE("plan: every technique sets what the arguments know, on a GPU that has it") {
  const PlanOptions options = options_of(1);
  for (const Technique& each : techniques()) {
    CAPTURE(each.name);
    CHECK(find_technique(each.name).effect == each.effect);
    const EstimateOptions changed = with_settings(options.step, each.sets);
    CHECK(is_set(changed, each));
  }
}

TEST_CASE("plan: the YAML has the options of the model, so that a run trains the planned step") {
  const SmallModel model;
  const TemporaryDirectory folder;
  PlanOptions options{.step = {.model = model.file(),
                               .hidden_dropout = 0.25,
                               .attn_implementation = AttentionImplementation::eager,
                               .length = 48,
                               .arguments = {.per_device_train_batch_size = 2,
                                             .optim_args = {{"stochastic_rounding", "true"}}},
                               .lora = {.r = 4, .target_modules = {"query", "key"}},
                               .device = "cuda:t4"},
                      .memory = std::int64_t{1} << 30,
                      .exactness = Exactness::exact,
                      .avoid = {"sdpa"}};
  const std::string yaml = (folder.path() / "plan.yaml").string();
  write_file_atomically(yaml, to_yaml(plan_step(options)));
  const TrainConfiguration run =
      parse_train({"--config_file", yaml, "--data", "dummy", "--dummy_length", "48"}, {});
  CHECK(run.options.model == model.file());
  CHECK(run.options.max_length == 48);
  CHECK(run.options.hidden_dropout == 0.25);
  CHECK(run.options.attn_implementation == AttentionImplementation::eager);
  CHECK(run.options.lora_r == 4);
  CHECK(run.options.lora_target_modules == std::vector<std::string>{"query", "key"});
  CHECK(run.options.task == TrainTask::text_classification);
  CHECK(run.arguments.optim_args.text("stochastic_rounding", "") == "true");
  CHECK(run.arguments.per_device_train_batch_size == 2);
}

TEST_CASE("plan: the plan of a small model fits, and the next larger batch does not") {
  const SmallModel model;
  PlanOptions options{
      .step = {.model = model.file(),
               .length = 64,
               .arguments = {.per_device_train_batch_size = 16}},
      .exactness = Exactness::exact,
      .avoid = {"recompute", "recompute_half", "recompute_cheap"},
      .budget = 0};  // without measured times, so the largest batch that fits is taken
  options.memory = needed_bytes(estimate(options.step).memory) * 6 / 10;
  const StepPlan plan = plan_step(options);
  const auto needed = [&](std::int64_t rows) {
    EstimateOptions step = with_settings(options.step, plan.settings);
    step.arguments.per_device_train_batch_size = rows;
    step.arguments.gradient_accumulation_steps = 16 / rows;
    return needed_bytes(estimate(step).memory);
  };
  REQUIRE(plan.rows < 16);
  CHECK(plan.rows * plan.accumulation == 16);
  CHECK(needed(plan.rows) == plan.cost.bytes);
  CHECK(plan.cost.bytes <= plan.memory);
  CHECK(needed(plan.next_rows) == plan.next_bytes);
  CHECK(plan.next_bytes > plan.memory);
  CHECK(plan.cost.seconds > 0);
}

TEST_CASE("plan: the plan recomputes the fewest layers with which the step fits") {
  const SmallModel model(/*width=*/64, /*layers=*/4);
  PlanOptions options{
      .step = {.model = model.file(),
               .length = 64,
               .arguments = {.per_device_train_batch_size = 1, .optim = OptimizerName::sgd}},
      .exactness = Exactness::exact,
      .use = {"recompute"},
      .budget = 0};
  const std::vector<std::string> layers = recomputable_layers(options.step);
  REQUIRE(layers.size() == 4);
  // The number of bytes that each choice of layers needs.
  std::vector<std::int64_t> bytes;
  for (int choice = 0; choice < 16; ++choice) {
    std::vector<std::string> chosen;
    for (int layer = 0; layer < 4; ++layer)
      if (choice >> layer & 1) chosen.push_back(layers[static_cast<std::size_t>(layer)]);
    const PlanSettings settings = chosen.empty() ? PlanSettings{} : recomputation_of(chosen).sets;
    bytes.push_back(needed_bytes(estimate(with_settings(options.step, settings)).memory));
  }
  const auto count = [](int choice) { return __builtin_popcount(static_cast<unsigned>(choice)); };
  for (const double share : {0.55, 0.65, 0.75, 0.85, 0.95}) {
    options.memory =
        bytes[15] + static_cast<std::int64_t>(share * static_cast<double>(bytes[0] - bytes[15]));
    int least = 4;
    for (int choice = 1; choice < 16; ++choice)
      if (bytes[static_cast<std::size_t>(choice)] <= options.memory)
        least = std::min(least, count(choice));
    const StepPlan plan = plan_step(options);
    CAPTURE(share);
    REQUIRE(plan.techniques.size() == 1);
    CHECK(plan.techniques.front() == (least == 4 ? "recompute" : str("recompute_", least)));
    CHECK(plan.cost.bytes <= options.memory);
  }
}

}  // namespace plan_plan_test
