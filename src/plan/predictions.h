// File: plan/predictions.h (internal)
// Predicts the step of an estimate with techniques and batches, each pair once.
//
//   StepPredictions predictions(options);
//   const StepNeeds needs = predictions.of({&find_technique("bf16")}, {.rows = 8});
//   if (is_impossible(needs)) ...                   // the model does not take the technique
//
// A step of many micro-batches is predicted from steps of two and of three, because every
// micro-batch after the third one is like the third. Throws what the step without techniques
// throws. Thread rule: one thread; the options must outlive the object.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plan/step_time_model.h"
#include "plan/techniques.h"

namespace hasten {

// The micro-batches of an optimizer step.
struct StepBatch {
  std::int64_t rows = 0, accumulation = 1;
  std::int64_t all() const { return rows * accumulation; }
  friend auto operator<=>(const StepBatch&, const StepBatch&) = default;
};

// "batches of 8 rows, 4 in a step"
std::string to_text(const StepBatch& batch);
// The effect of other batches with the same rows in a step.
inline constexpr const char* kSameRowsEffect =
    "The step has the same rows; sums over them have another order, and dropout draws other "
    "numbers.";

// True for the needs of a step that cannot be made, which no limit allows.
bool is_impossible(const StepNeeds& needs);

class StepPredictions {
 public:
  explicit StepPredictions(const PlanOptions& options) : options_(options), time_(options.budget) {}

  const StepNeeds& of(const TechniqueSet& techniques, const StepBatch& batch);
  // True if the arguments take the techniques with these batches.
  bool are_valid(const TechniqueSet& techniques, const StepBatch& batch) const;
  // Returns the reason why the step with these techniques is impossible; empty: it is unknown.
  std::string refusal(const TechniqueSet& techniques, const StepBatch& batch) const;
  // The number of dry runs.
  std::int64_t runs() const { return runs_; }

 private:
  using Key = std::pair<TechniqueSet, StepBatch>;

  StepNeeds predict(const TechniqueSet& techniques, const StepBatch& batch);
  StepNeeds run(const TechniqueSet& techniques, const StepBatch& batch);
  EstimateOptions step_with(const TechniqueSet& techniques, const StepBatch& batch) const;

  const PlanOptions& options_;
  StepTimeModel time_;
  std::map<Key, StepNeeds> known_;
  std::map<Key, std::string> refusals_;
  std::int64_t runs_ = 0;
};

}  // namespace hasten
