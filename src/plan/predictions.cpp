#include "plan/predictions.h"

#include <algorithm>
#include <limits>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

constexpr std::int64_t kImpossible = std::numeric_limits<std::int64_t>::max();

}  // namespace

std::string to_text(const StepBatch& batch) {
  return str("batches of ", batch.rows, batch.rows == 1 ? " row, " : " rows, ", batch.accumulation,
             " in a step");
}

bool is_impossible(const StepNeeds& needs) { return needs.bytes == kImpossible; }

const StepNeeds& StepPredictions::of(const TechniqueSet& techniques, const StepBatch& batch) {
  const Key key(techniques, batch);
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  return known_[key] = predict(techniques, batch);
}

StepNeeds StepPredictions::predict(const TechniqueSet& techniques, const StepBatch& batch) {
  if (batch.accumulation <= 3) return run(techniques, batch);
  // Every further micro-batch adds its tensors and its time, as the third one does.
  const StepNeeds three = of(techniques, {.rows = batch.rows, .accumulation = 3}),
                  two = of(techniques, {.rows = batch.rows, .accumulation = 2});
  if (is_impossible(three) || is_impossible(two)) return three;
  const std::int64_t more = batch.accumulation - 3;
  return {.bytes = three.bytes + more * (three.bytes - two.bytes),
          .seconds = three.seconds +
                     static_cast<double>(more) * std::max(0.0, three.seconds - two.seconds)};
}

StepNeeds StepPredictions::run(const TechniqueSet& techniques, const StepBatch& batch) {
  ++runs_;
  try {
    if (options_.predictor)
      return options_.predictor(settings_of(techniques), batch.rows, batch.accumulation);
    EstimateOptions step = step_with(techniques, batch);
    step.dry = true;
    return time_.predict(step);
  } catch (const UsageError& error) {  // the model does not take a technique
    if (techniques.empty()) throw;
    refusals_[{techniques, batch}] = error.what();
  } catch (const ConfigError& error) {
    if (techniques.empty()) throw;
    refusals_[{techniques, batch}] = error.what();
  }
  return {.bytes = kImpossible};
}

std::string StepPredictions::refusal(const TechniqueSet& techniques, const StepBatch& batch) const {
  const auto found = refusals_.find({techniques, batch});
  return found == refusals_.end() ? "" : found->second;
}

bool StepPredictions::are_valid(const TechniqueSet& techniques, const StepBatch& batch) const {
  return is_valid(step_with(techniques, batch).arguments);
}

EstimateOptions StepPredictions::step_with(const TechniqueSet& techniques,
                                           const StepBatch& batch) const {
  EstimateOptions step = with_settings(options_.step, settings_of(techniques));
  step.arguments.per_device_train_batch_size = batch.rows;
  step.arguments.gradient_accumulation_steps = batch.accumulation;
  return step;
}

}  // namespace hasten
