// Steps to plan: a step with costs that a formula gives, and the steps of a small BERT.
//
//   PlanOptions options = options_of(4000 * kMiB);
//   const StepPlan plan = plan_step(options);
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>

#include "device/host_traffic.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/plan/plan.h"

namespace hasten::planned_steps {

inline constexpr std::int64_t kMiB = 1 << 20;

inline bool sets(const PlanSettings& settings, const std::string& name, const std::string& value) {
  return std::find(settings.begin(), settings.end(), std::pair(name, value)) != settings.end();
}

// A step with 200 MiB of weights and gradients, 200 MiB of optimizer states and 50 MiB for each
// row. Each micro-batch takes 10 ms, and 2 ms for each row.
inline StepCost cost_of(const PlanSettings& settings, std::int64_t rows,
                        std::int64_t accumulation) {
  double states = 200, row = 50, time = 2;
  if (sets(settings, "bf16", "true")) row *= 0.6, time *= 0.7;
  if (sets(settings, "optim", "adafactor")) states = 2, time *= 1.1;
  if (sets(settings, "optim", "sgd")) states = 0, time *= 0.95;
  const double all = 200 + states + row * static_cast<double>(rows);
  return {.bytes = static_cast<std::int64_t>(all) * kMiB,
          .seconds =
              1e-3 * static_cast<double>(accumulation) * (10 + time * static_cast<double>(rows))};
}

inline PlanOptions options_of(std::int64_t memory) {
  PlanOptions options{.step = {.model = "a model",
                               .arguments = {.per_device_train_batch_size = 16},
                               .device = "cuda:a100-40gb"},
                      .memory = memory,
                      .predictor = cost_of};
  return options;
}

// The configuration of a small BERT, in a file that is deleted with the object.
class SmallModel {
 public:
  explicit SmallModel(std::int64_t width = 64, std::int64_t layers = 2) {
    write_file_atomically(file(),
                          str(R"({"model_type": "bert", "vocab_size": 100, "hidden_size": )", width,
                              R"(, "num_hidden_layers": )", layers,
                              R"(, "num_attention_heads": 4, "intermediate_size": )", 4 * width,
                              R"(, "max_position_embeddings": 64,
                        "architectures": ["BertForSequenceClassification"]})"));
  }
  std::string file() const { return (folder_.path() / "config.json").string(); }

 private:
  TemporaryDirectory folder_;
};

inline bool has_change(const anatomy::StepComparison& comparison, const std::string& name) {
  return std::any_of(comparison.changes.begin(), comparison.changes.end(),
                     [&](const anatomy::StepChange& each) { return each.name == name; });
}

inline const anatomy::StepChange& change_of(const anatomy::StepComparison& comparison,
                                            const std::string& name) {
  for (const anatomy::StepChange& each : comparison.changes)
    if (each.name == name) return each;
  FAIL("no change " << name);
  return comparison.changes.front();
}

}  // namespace hasten::planned_steps
