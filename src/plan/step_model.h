// File: plan/step_model.h (internal)
// Predicts the memory and the time of steps on the device that a plan is made for. The devices
// differ in how they predict a step and in the techniques for which they can do so.
//
//   const std::unique_ptr<StepModel> model = make_step_model(options);
//   const StepPrediction found = model->predict(options.step);
//
// Thread rule: one thread.
#pragma once

#include <memory>
#include <string>

#include "plan/techniques.h"

namespace hasten {

struct StepPrediction {
  StepCost cost;                 // without a time if the time is not predicted
  std::string rejection_reason;  // the reason why the step is impossible, or empty
};

class StepModel {
 public:
  StepModel() = default;
  StepModel(const StepModel&) = delete;
  StepModel& operator=(const StepModel&) = delete;
  virtual ~StepModel() = default;

  virtual StepPrediction predict(const EstimateOptions& step) = 0;
  // Returns true if each micro-batch after the third one adds the same memory and time to a step.
  virtual bool adds_equal_micro_batches() const = 0;
  // Returns the reason why a plan does not consider the technique for the device, or an empty text
  // if there is none.
  virtual std::string exclusion_reason(const PlanOptions& options,
                                       const Technique& technique) const = 0;
};

// Returns the model for the device of `options.step`.
std::unique_ptr<StepModel> make_step_model(const PlanOptions& options);

}  // namespace hasten
