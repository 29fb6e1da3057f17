// Compares the requested step with the same step after one change: with each technique added,
// without each technique that it has, with half the batch, and with half the length.
#include <algorithm>
#include <list>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/plan/plan.h"
#include "plan/predictions.h"
#include "plan/techniques.h"
#include "trainer/dynamic_sizes.h"

namespace hasten {
namespace {

using anatomy::StepChange;
using anatomy::StepComparison;

// Returns the contradiction between the arguments, or an empty text if there is none.
std::string contradiction_of(const TrainingArguments& arguments) {
  try {
    (void)resolved(arguments);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

class Comparison {
 public:
  Comparison(const PlanOptions& options, const OnChange& on_begin)
      : options_(options),
        on_begin_(on_begin),
        requested_{.rows = options.step.arguments.per_device_train_batch_size,
                   .accumulation = options.step.arguments.gradient_accumulation_steps},
        predictions_(options) {}

  StepComparison run() {
    StepComparison out{.model = options_.step.model,
                       .device = options_.step.device,
                       .rows = requested_.rows,
                       .accumulation = requested_.accumulation,
                       .memory = options_.memory,
                       .process = options_.process,
                       .baseline = predictions_.get({}, requested_),
                       .changes = {}};
    if (is_impossible(out.baseline)) out.baseline = {};
    for (const Technique& each : techniques()) out.changes.push_back(change_of(each));
    const DynamicSizes sizes =
        options_.predictor ? DynamicSizes{.length = false} : dynamic_sizes(options_.step);
    if (sizes.rows && requested_.rows > 1) out.changes.push_back(half_batch());
    if (sizes.length && options_.step.length > 1) out.changes.push_back(half_length());
    return out;
  }

 private:
  StepChange change_of(const Technique& technique) {
    if (is_set(options_.step, technique)) return removal_of(technique);
    StepChange change = make_change(technique);
    change.rejection_reason = exclusion_reason(options_, technique);
    if (change.rejection_reason.empty())
      change.rejection_reason =
          contradiction_of(with_settings(options_.step, technique.sets).arguments);
    return with_prediction(std::move(change), {&technique}, requested_);
  }

  // Removes a technique that the step has, unless it is the default.
  StepChange removal_of(const Technique& technique) {
    if (!is_most_specific(technique)) {
      StepChange change = make_change(technique);
      change.rejection_reason = "the step already uses it";
      return change;
    }
    const Technique& without = store(without_technique(technique));
    StepChange change = make_change(without);
    // The change is as exact as the one back to the technique.
    change.exactness = exactness_of(with_settings(options_.step, without.sets), technique);
    return with_prediction(std::move(change), {&without}, requested_);
  }

  // Returns true if removing the technique changes the step, and if the step has no other technique
  // of the group that sets more arguments.
  bool is_most_specific(const Technique& technique) const {
    if (is_set(options_.step, without_technique(technique))) return false;
    return std::none_of(techniques().begin(), techniques().end(), [&](const Technique& other) {
      return other.group == technique.group && other.sets.size() > technique.sets.size() &&
             is_set(options_.step, other);
    });
  }

  StepChange half_batch() {
    const bool trains = options_.step.mode == EstimateMode::training;
    const StepBatch half{
        .rows = requested_.rows / 2,
        .accumulation = trains ? 2 * requested_.accumulation : requested_.accumulation};
    // Half of an odd batch leaves out a row of each micro-batch.
    const bool has_same_rows = half.total_rows() == requested_.total_rows();
    const char* const effect = !trains         ? "A batch has half the rows."
                               : has_same_rows ? kSameRowsEffect
                                               : kFewerRowsEffect;
    return with_prediction(
        make_change({.name = to_text(half),
                     .group = "batch",
                     .exactness = trains && !has_same_rows ? Exactness::other : Exactness::exact,
                     .effect = effect}),
        {}, half);
  }

  StepChange half_length() {
    const Technique& shorter = store(rows_of_length(options_.step.length / 2));
    return with_prediction(make_change(shorter), {&shorter}, requested_);
  }

  // Keeps the technique alive at one address, because predictions identify it by its address.
  const Technique& store(Technique technique) {
    return extra_techniques_.emplace_back(std::move(technique));
  }

  StepChange make_change(const Technique& technique) const {
    return {.name = technique.name,
            .effect = technique.effect,
            .exactness = exactness_of(options_.step, technique)};
  }

  StepChange with_prediction(StepChange change, const TechniqueSet& set, const StepBatch& batch) {
    if (!change.rejection_reason.empty()) return change;
    if (on_begin_) on_begin_(change.name);
    const StepCost cost = predictions_.get(set, batch);
    if (is_impossible(cost)) {
      change.rejection_reason = predictions_.rejection_reason(set, batch);
    } else {
      change.cost = cost;
    }
    return change;
  }

  const PlanOptions& options_;
  const OnChange& on_begin_;
  const StepBatch requested_;
  std::list<Technique> extra_techniques_;  // techniques that are not in the table
  StepPredictions predictions_;
};

}  // namespace

StepComparison compare_changes(const PlanOptions& options, const OnChange& on_begin) {
  return Comparison(options, on_begin).run();
}

}  // namespace hasten
