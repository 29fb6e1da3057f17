// File: plan/step_time_model.h (internal)
// Predicts the time of a step from a dry run.
//
//   StepTimeModel time(2);                                   // two seconds for all measurements
//   const StepCost cost = time.predict(options);      // memory and time
//
// On the CPU each distinct operator call is timed once on operands of its shapes. The longest calls
// come first, until the budget is used up. The times are kept for all predictions. For a call
// without a measurement, the roofline time is divided by the efficiency of the measured calls of
// its group. On a GPU the step takes the time that its report expects. Copies to and from host
// memory run during the computation, at a share of the link's rate. An optimizer that steps in host
// memory takes the time to read and write its operands there. Thread rule: one thread.
#pragma once

#include <array>
#include <map>
#include <string>

#include "anatomy/call_collector.h"
#include "hasten/plan/plan.h"

namespace hasten {

// Returns the seconds of a step that follow from a report alone: the expected time on a GPU, or the
// time if every operator runs at a usual share of its roof. Returns 0 if the roofs are not known.
double reported_seconds(const anatomy::Report& report);

class StepTimeModel {
 public:
  explicit StepTimeModel(double budget) : budget_(budget) {}

  StepCost predict(const EstimateOptions& options);

 private:
  double cpu_seconds(const anatomy::CallCollector& calls, const anatomy::Report& report);
  double roofline(const anatomy::CollectedCall& call) const;
  void measure(const anatomy::CallCollector& calls);

  double budget_;
  anatomy::Roofs roofs_;  // of this machine, measured when first needed
  // The seconds that LibTorch's dispatcher and autograd add to each operator, and the seconds of a
  // view.
  double call_overhead_ = 0, view_seconds_ = 0;
  std::map<std::string, double> measured_;  // seconds by signature
  // Sums over the measured calls of a group: their measured seconds and their roofline seconds.
  struct Efficiency {
    double seconds = 0, roofline = 0;
  };
  std::array<Efficiency, anatomy::kGroups> groups_{};
};

}  // namespace hasten
