// File: plan/step_time_model.h (internal)
// Predicts the time of a step from a dry run.
//
//   StepTimeModel time(2);                                   // two seconds for all measurements
//   const StepNeeds needs = time.predict(options);      // memory and time
//
// On the CPU each distinct operator call is timed once on operands of its shapes, the longest
// first, as long as the budget lasts; the times are kept for all predictions. A call without a
// measurement takes the time of its roofline divided by the efficiency that measured calls of its
// group had. For a GPU the step takes the time that its report expects; copies to host memory and
// back run during the computation at a share of the link's rate, and an optimizer that steps in
// host memory takes the time to read and write its operands there. Thread rule: one thread.
#pragma once

#include <array>
#include <map>
#include <string>

#include "anatomy/call_collector.h"
#include "hasten/plan/plan.h"

namespace hasten {

// The seconds of a step that follow from a report alone: those that are expected of a GPU, or those
// in which every operator runs at a usual share of its roof; 0 without roofs.
double reported_seconds(const anatomy::Report& report);

class StepTimeModel {
 public:
  explicit StepTimeModel(double budget) : budget_(budget) {}

  StepNeeds predict(const EstimateOptions& options);

 private:
  double cpu_seconds(const anatomy::CallCollector& calls, const anatomy::Report& report);
  double roofline(const anatomy::CollectedCall& call) const;
  void measure(const anatomy::CallCollector& calls);

  double budget_;
  anatomy::Roofs roofs_;  // those of this machine, measured when first needed
  // The time of LibTorch's dispatcher and autograd for each operator, and the whole time of a view.
  double call_overhead_ = 0, view_seconds_ = 0;
  std::map<std::string, double> measured_;  // seconds by signature
  // The sums over the measured calls of each group: their seconds, and those of their rooflines.
  struct Efficiency {
    double seconds = 0, roofline = 0;
  };
  std::array<Efficiency, anatomy::kGroups> groups_{};
};

}  // namespace hasten
