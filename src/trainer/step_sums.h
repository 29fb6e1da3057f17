// File: trainer/step_sums.h (internal)
// The sums of the losses of a run's latest steps, which stay on the device until they are read
// together.
//
//   const auto sums = make_step_sums(device);
//   sums->add(loss, items);                             // each micro-batch
//   sums->close();                                      // each step
//   const StepSums::Result taken = sums->take(norm);    // waits for the device once
//
// Sums are in double, as on the host, if the device supports it, and otherwise in float. The memory
// is allocated once and does not grow. Thread rule: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "hasten/device/detail/deferred_scalar.h"

namespace hasten {

class StepSums {
 public:
  // The number of steps that may be closed before they are taken.
  static constexpr std::int64_t kCapacity = 512;

  virtual ~StepSums() = default;

  // Adds the mean loss of this many labels or rows to the open step.
  virtual void add(const at::Tensor& loss, double items) = 0;
  // Does the same with a number of items on the device. `items` has one element and the type of the
  // sums.
  virtual void add(const at::Tensor& loss, const at::Tensor& items) = 0;
  // Ends the open step and begins another.
  virtual void close() = 0;

  struct Result {
    std::vector<double> sums;  // the sums of the closed steps, the oldest first
    double extra = 0;          // the value of the argument `extra`
  };
  // Reads the closed steps and forgets them; the open step stays. If no program has to be compiled
  // for it, `extra` is read with the same wait.
  virtual Result take(const DeferredScalar& extra) = 0;

  // Reads and returns the sum of the open step.
  virtual double open() const = 0;
  virtual void set_open(double sum) = 0;
  // Returns the tensors on the device.
  virtual std::vector<at::Tensor> tensors() const = 0;
};

std::unique_ptr<StepSums> make_step_sums(at::Device device);
// Returns the sums for a device that repeats add() in a graph: the sum of the open step stays at
// one address.
std::unique_ptr<StepSums> make_graph_step_sums(at::Device device);
// Returns the sums for a device that compiles programs: every step runs the same ones.
std::unique_ptr<StepSums> make_compiled_step_sums(at::Device device);

}  // namespace hasten
