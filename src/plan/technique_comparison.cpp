// Compares the step with each technique alone with the step as it was asked for.
#include "hasten/base/error.h"
#include "hasten/plan/plan.h"
#include "plan/predictions.h"
#include "plan/techniques.h"

namespace hasten {
namespace {

// Returns the contradiction of the arguments; empty: there is none.
std::string contradiction_of(const TrainingArguments& arguments) {
  try {
    (void)resolved(arguments);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TechniqueEffect effect_of(const PlanOptions& options, const Technique& technique,
                          const StepBatch& batch, StepPredictions& predictions) {
  TechniqueEffect out{.name = technique.name,
                      .effect = technique.effect,
                      .exactness = exactness_of(options.step, technique)};
  if (is_set(options.step, technique)) {
    out.refused = "the step has it already";
    return out;
  }
  out.refused = obstacle_to(options, technique);
  if (out.refused.empty())
    out.refused = contradiction_of(with_settings(options.step, technique.sets).arguments);
  if (!out.refused.empty()) return out;
  out.needs = predictions.of({&technique}, batch);
  if (is_impossible(out.needs)) {
    out.needs = {};
    out.refused = predictions.refusal({&technique}, batch);
  }
  return out;
}

}  // namespace

TechniqueComparison compare_techniques(const PlanOptions& options) {
  const TrainingArguments& arguments = options.step.arguments;
  const StepBatch batch{.rows = arguments.per_device_train_batch_size,
                        .accumulation = arguments.gradient_accumulation_steps};
  StepPredictions predictions(options);
  TechniqueComparison comparison{.asked = predictions.of({}, batch),
                                 .rows = batch.rows,
                                 .accumulation = batch.accumulation,
                                 .memory = options.memory,
                                 .process = options.process,
                                 .model = options.step.model,
                                 .device = options.step.device,
                                 .effects = {}};
  for (const Technique& each : techniques())
    comparison.effects.push_back(effect_of(options, each, batch, predictions));
  return comparison;
}

}  // namespace hasten
