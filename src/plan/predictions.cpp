#include "plan/predictions.h"

#include <algorithm>
#include <limits>

#include "anatomy/comparison_text.h"
#include "hasten/base/error.h"

namespace hasten {
namespace {

constexpr std::int64_t kImpossible = std::numeric_limits<std::int64_t>::max();

}  // namespace

std::string to_text(const StepBatch& batch) {
  return anatomy::batches_text(batch.rows, batch.accumulation);
}

bool is_impossible(const StepCost& cost) { return cost.bytes == kImpossible; }

const StepCost& StepPredictions::get(const TechniqueSet& techniques, const StepBatch& batch) {
  const Key key(techniques, batch);
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  return known_[key] = predict(techniques, batch);
}

StepCost StepPredictions::predict(const TechniqueSet& techniques, const StepBatch& batch) {
  if (batch.accumulation <= 3 || !model_->adds_equal_micro_batches()) return run(techniques, batch);
  // Each further micro-batch adds the same memory and time as the third one.
  const StepBatch three_batches{.rows = batch.rows, .accumulation = 3},
      two_batches{.rows = batch.rows, .accumulation = 2};
  const StepCost three = get(techniques, three_batches), two = get(techniques, two_batches);
  if (is_impossible(three) || is_impossible(two)) {
    rejection_reasons_[{techniques, batch}] =
        rejection_reason(techniques, is_impossible(three) ? three_batches : two_batches);
    return {.bytes = kImpossible};
  }
  const std::int64_t more = batch.accumulation - 3;
  return {.bytes = three.bytes + more * (three.bytes - two.bytes),
          .seconds = three.seconds +
                     static_cast<double>(more) * std::max(0.0, three.seconds - two.seconds)};
}

StepCost StepPredictions::run(const TechniqueSet& techniques, const StepBatch& batch) {
  ++runs_;
  try {
    if (options_.predictor)
      return options_.predictor(settings_of(techniques), batch.rows, batch.accumulation);
    EstimateOptions step = step_with(techniques, batch);
    step.dry = true;
    const StepPrediction found = model_->predict(step);
    if (found.rejection_reason.empty()) return found.cost;
    rejection_reasons_[{techniques, batch}] = found.rejection_reason;
    return {.bytes = kImpossible};
  } catch (const UsageError& error) {  // the model does not support a technique
    if (techniques.empty()) throw;
    rejection_reasons_[{techniques, batch}] = error.what();
  } catch (const ConfigError& error) {
    if (techniques.empty()) throw;
    rejection_reasons_[{techniques, batch}] = error.what();
  }
  return {.bytes = kImpossible};
}

std::string StepPredictions::rejection_reason(const TechniqueSet& techniques,
                                              const StepBatch& batch) const {
  const auto found = rejection_reasons_.find({techniques, batch});
  return found == rejection_reasons_.end() ? "" : found->second;
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
