// File: anatomy/call_collector.h (internal)
// Collects the operator calls of a dry run on the CPU, each distinct call once, so that they can be
// timed on zero-filled operands of the same shapes.
//
//   CallCollector calls;
//   estimate(options);
//   for (const auto& [signature, call] : calls.calls()) total += call.count * measured_seconds(call);
//
// A dry run reports the calls of the thread that constructed the collector, in the steps that an
// Anatomy observes. Thread rule: one collector at a time in a thread.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "hasten/anatomy/detail/component.h"

namespace hasten::anatomy {

// All calls of one operator with operands of the same shapes, types and strides.
struct CollectedCall {
  c10::OperatorHandle op;
  std::vector<c10::IValue> arguments;  // tensors without data, on the Meta device
  std::int64_t count = 0;
  OperationGroup group = OperationGroup::element_wise;
  double flops = 0, bytes = 0;  // for one call
  bool half = false;            // an operand has 16-bit numbers
};

class CallCollector {
 public:
  CallCollector();
  CallCollector(const CallCollector&) = delete;
  CallCollector& operator=(const CallCollector&) = delete;
  ~CallCollector();

  // Returns the collector of this thread, or null.
  static CallCollector* active();
  // Returns the calls by signature.
  const std::map<std::string, CollectedCall>& calls() const { return calls_; }

  // Sets whether calls are counted from now on. An Anatomy calls this: only the phases of steps
  // count.
  void set_counting(bool counts) { counts_ = counts; }
  // Counts a call. `results` contains all results, including those that are also arguments.
  void add(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
           const std::vector<c10::IValue>& results);

 private:
  std::map<std::string, CollectedCall> calls_;
  bool counts_ = false;
};

// Returns the value with each tensor replaced by a tensor without data on the Meta device.
c10::IValue without_data(const c10::IValue& value);

// Returns the seconds of a clock for measuring work. With one thread it is the processor time of
// the thread, which other programs hardly affect.
double work_clock_seconds();

// Runs the kernel on zeros and returns the seconds of one call: the minimum of several, or 0 if it
// cannot run on zeros. Takes about `budget` seconds unless one call takes longer. Call it outside
// of dry runs.
double measured_seconds(const CollectedCall& call, double budget);

}  // namespace hasten::anatomy
