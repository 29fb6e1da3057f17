// File: anatomy/recorder_frame.h (internal)
// The running operators and backward nodes, with the innermost first. Thread rule: as for Anatomy.
#pragma once

#include "anatomy/recorder.h"

namespace hasten {

struct Anatomy::Recorder::Frame : at::ObserverContext {
  Frame* parent = nullptr;
  const Operator* op = nullptr;           // null for a node of the backward pass
  const anatomy::OpRule* rule = nullptr;  // the rule that applies to this call, or null
  std::int64_t call = -1;                 // its number among all operator calls
  std::int32_t module = -1;
  anatomy::Phase phase = anatomy::Phase::other, phase_before = anatomy::Phase::other;
  std::chrono::steady_clock::time_point began;
  std::chrono::steady_clock::duration nested_time{};  // time in the operators that it calls
  bool has_counted_children = false;                  // true if some of these are counted
  anatomy::CallShapes shapes;
  std::int64_t read = 0, written = 0;
  bool copies_weight = false;
  int exceptions = 0;   // number of exceptions in flight when it began
  bool half = false;    // an operand has 16-bit numbers
  bool on_gpu = false;  // a tensor is on a simulated GPU
};

}  // namespace hasten
