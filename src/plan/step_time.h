// File: plan/step_time.h (internal)
// Predicts the time of a step from a dry run.
//
//   StepTime time(2);                                   // two seconds for all measurements
//   const StepNeeds needs = time.predict(options);      // memory and time
//
// On the CPU each distinct operator call is timed once on operands of its shapes, the longest
// first, as long as the budget lasts; the times are kept for all predictions. A call without a
// measurement takes the time of its roofline divided by the efficiency that measured calls of its
// group had. For a GPU every operator takes a share of its roof. Thread rule: one thread.
#pragma once

#include <array>
#include <map>
#include <string>

#include "anatomy/call_collector.h"
#include "hasten/plan/plan.h"

namespace hasten {

// The seconds of a step in which every operator runs at a usual share of its roof; 0 without roofs.
double roofline_seconds(const anatomy::Report& report);

class StepTime {
 public:
  explicit StepTime(double budget) : budget_(budget) {}

  StepNeeds predict(const EstimateOptions& options);

 private:
  double cpu_seconds(const anatomy::CallCollector& calls, std::int64_t steps);
  double roofline(const anatomy::CollectedCall& call) const;
  void measure(const anatomy::CallCollector& calls);

  double budget_;
  anatomy::Roofs roofs_;  // of this machine, measured when first needed
  double call_overhead_ = 0;
  std::map<std::string, double> measured_;  // seconds by signature
  // Of the measured calls of each group: the sums of their seconds and of their roofline's.
  struct Efficiency {
    double seconds = 0, roofline = 0;
  };
  std::array<Efficiency, anatomy::kGroups> groups_{};
};

}  // namespace hasten
