// File: hasten/device/deferred_scalar.h
// A number that may still be on a device, and is read when it is asked for.
//
//   const DeferredScalar norm = accelerator.clip_grad_norm_(model->parameters(), 1.0);
//   if (step % 100 == 0) std::printf("%f\n", norm.value());     // waits for the device here alone
//
// On a TPU reading a number waits for all that was asked of the device before. Where the number is
// known already (CPU, GPU) it is held as it is. Converts to double, so what it is assigned to reads
// it. Thread rule: a value; the first reading is not to be shared by threads.
#pragma once

#include <ATen/core/Tensor.h>

namespace hasten {

class DeferredScalar {
 public:
  DeferredScalar(double value = 0) : value_(value) {}
  // A tensor of one element.
  explicit DeferredScalar(at::Tensor on_device) : on_device_(std::move(on_device)) {}

  double value() const;
  operator double() const { return value(); }

 private:
  mutable at::Tensor on_device_;  // undefined: read already
  mutable double value_ = 0;
};

}  // namespace hasten
