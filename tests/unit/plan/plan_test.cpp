// Plans of steps whose needs are known by formulas, and of a small model by dry runs.
#include "hasten/plan/plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "plan/techniques.h"
#include "unit/code_of.h"

namespace plan_plan_test {

using namespace hasten;

namespace {

constexpr std::int64_t kMiB = 1 << 20;

bool sets(const PlanSettings& settings, const std::string& name, const std::string& value) {
  return std::find(settings.begin(), settings.end(), std::pair(name, value)) != settings.end();
}

// A step with 100 MiB of weights, 200 MiB of optimizer states and 50 MiB for each row. Each
// micro-batch takes 10 ms and 2 ms a row.
StepNeeds needs_of(const PlanSettings& settings, std::int64_t rows, std::int64_t accumulation) {
  double states = 200, row = 50, time = 2;
  if (sets(settings, "bf16", "true")) row *= 0.6, time *= 0.7;
  if (sets(settings, "optim", "adafactor")) states = 2, time *= 1.1;
  if (sets(settings, "optim", "sgd")) states = 0, time *= 0.95;
  const double all = 200 + states + row * static_cast<double>(rows);
  return {.bytes = static_cast<std::int64_t>(all) * kMiB,
          .seconds =
              1e-3 * static_cast<double>(accumulation) * (10 + time * static_cast<double>(rows))};
}

PlanOptions options_of(std::int64_t memory) {
  PlanOptions options{.step = {.model = "a model",
                               .arguments = {.per_device_train_batch_size = 16},
                               .device = "cuda:a100-40gb"},
                      .memory = memory,
                      .predictor = needs_of};
  return options;
}

}  // namespace

TEST_CASE("plan: what is asked for is kept if it fits and nothing is faster") {
  PlanOptions options = options_of(4000 * kMiB);
  options.avoid = {"bf16"};
  const StepPlan plan = plan_step(options);
  CHECK(plan.techniques.empty());
  CHECK(plan.rows == 16);
  CHECK(plan.accumulation == 1);
  CHECK(plan.stages.size() == 1);
  CHECK(plan.next_rows == 0);
}

TEST_CASE("plan: the fastest combination of all, found by trying all") {
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
          for (const std::int64_t rows : {1, 2, 4, 8, 16}) {
            const StepNeeds needs = needs_of(settings, rows, keep ? 16 / rows : 1);
            if (needs.bytes <= memory * kMiB)
              best = std::min(best, needs.seconds / (keep ? 16.0 : static_cast<double>(rows)));
          }
        }
        if (best == 1e9) {
          CHECK(code_of([&] { plan_step(options); }) == "plan.too-small");
          continue;
        }
        const StepPlan plan = plan_step(options);
        const double found =
            plan.needs.seconds / static_cast<double>(plan.rows * plan.accumulation);
        CHECK(found <= best * 1.021);
        CHECK(plan.needs.bytes <= plan.memory);
        CHECK(plan.stages.back().needs.bytes == plan.needs.bytes);
        if (keep) CHECK(plan.rows * plan.accumulation == 16);
        if (plan.next_rows > 0) CHECK(plan.next_bytes > plan.memory);
      }
    }
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

TEST_CASE("plan: the YAML has what differs from the defaults, and the arguments read it back") {
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

TEST_CASE("plan: of a small model, it fits and the next larger batch does not") {
  const TemporaryDirectory folder;
  const auto config = folder.path() / "config.json";
  write_file_atomically(config, R"({"model_type": "bert", "vocab_size": 100, "hidden_size": 64,
      "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256,
      "max_position_embeddings": 64, "architectures": ["BertForSequenceClassification"]})");
  PlanOptions options{.step = {.model = config.string(),
                               .length = 64,
                               .arguments = {.per_device_train_batch_size = 16}},
                      .exactness = Exactness::exact,
                      .avoid = {"recompute", "recompute_half", "recompute_cheap"},
                      .budget = 0.2};
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
  CHECK(needed(plan.rows) == plan.needs.bytes);
  CHECK(plan.needs.bytes <= plan.memory);
  CHECK(needed(plan.next_rows) == plan.next_bytes);
  CHECK(plan.next_bytes > plan.memory);
  CHECK(plan.needs.seconds > 0);
}

TEST_CASE("plan: no other choice of layers recomputes fewer") {
  const TemporaryDirectory folder;
  const auto config = folder.path() / "config.json";
  write_file_atomically(config, R"({"model_type": "bert", "vocab_size": 100, "hidden_size": 64,
      "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 256,
      "max_position_embeddings": 64, "architectures": ["BertForSequenceClassification"]})");
  PlanOptions options{
      .step = {.model = config.string(),
               .length = 64,
               .arguments = {.per_device_train_batch_size = 1, .optim = OptimizerName::sgd}},
      .exactness = Exactness::exact,
      .use = {"recompute"},
      .budget = 0};
  const std::vector<std::string> layers = recomputable_layers(options.step);
  REQUIRE(layers.size() == 4);
  // The bytes of each choice of layers.
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
    CHECK(plan.needs.bytes <= options.memory);
  }
}

}  // namespace plan_plan_test
