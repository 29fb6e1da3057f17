// File: plan/predictions.h (internal)
// Predicts the step of an estimate with techniques and batches. Each pair is predicted once.
//
//   StepPredictions predictions(options);
//   const StepCost cost = predictions.get({&find_technique("bf16")}, {.rows = 8});
//   if (is_impossible(cost)) ...                    // the model does not take the technique
//
// A step with many micro-batches is predicted from steps with two and with three, because every
// micro-batch after the third one is like the third. Throws the exceptions of the step without
// techniques. Thread rule: one thread; the options must outlive the object.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plan/step_model.h"
#include "plan/techniques.h"

namespace hasten {

// The micro-batches of an optimizer step.
struct StepBatch {
  std::int64_t rows = 0, accumulation = 1;
  std::int64_t total_rows() const { return rows * accumulation; }
  friend auto operator<=>(const StepBatch&, const StepBatch&) = default;
};

// Returns, for example, "batches of 8 rows, 4 in a step".
std::string to_text(const StepBatch& batch);
// The effect of different batches with the same number of rows in a step.
inline constexpr const char* kSameRowsEffect =
    "The step has the same rows; sums over them have another order, and dropout draws other "
    "numbers.";
// The effect of batches with fewer rows in a step, which is another algorithm.
inline constexpr const char* kFewerRowsEffect =
    "The step has fewer rows, so choose the learning rate again.";

// Returns true for the cost of an impossible step, which exceeds every limit.
bool is_impossible(const StepCost& cost);

class StepPredictions {
 public:
  explicit StepPredictions(const PlanOptions& options)
      : options_(options), model_(make_step_model(options)) {}

  const StepCost& get(const TechniqueSet& techniques, const StepBatch& batch);
  // Returns true if the arguments allow the techniques with these batches.
  bool are_valid(const TechniqueSet& techniques, const StepBatch& batch) const;
  // Returns the reason why the step with these techniques is impossible, or an empty text if it is
  // not known.
  std::string rejection_reason(const TechniqueSet& techniques, const StepBatch& batch) const;
  // The number of dry runs.
  std::int64_t runs() const { return runs_; }

 private:
  using Key = std::pair<TechniqueSet, StepBatch>;

  StepCost predict(const TechniqueSet& techniques, const StepBatch& batch);
  StepCost run(const TechniqueSet& techniques, const StepBatch& batch);
  EstimateOptions step_with(const TechniqueSet& techniques, const StepBatch& batch) const;

  const PlanOptions& options_;
  std::unique_ptr<StepModel> model_;
  std::map<Key, StepCost> known_;
  std::map<Key, std::string> rejection_reasons_;
  std::int64_t runs_ = 0;
};

}  // namespace hasten
