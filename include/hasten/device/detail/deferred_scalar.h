// File: hasten/device/detail/deferred_scalar.h
// A number that may still be on a device, and is read from it when its value is first used.
//
//   const DeferredScalar norm = accelerator.clip_grad_norm_(model->parameters(), 1.0);
//   if (step % 100 == 0) std::printf("%f\n", norm.value());     // only this waits for the device
//
// On a GPU or a TPU, reading a number waits for all operations that were submitted before. On the
// CPU the number is stored at once. It converts implicitly to double, which reads it. Thread rule:
// a value; threads must not share it before it is first read.
#pragma once

#include <ATen/core/Tensor.h>

#include "hasten/base/detail/export.h"

namespace hasten {

class HASTEN_API DeferredScalar {
 public:
  DeferredScalar(double value = 0) : value_(value) {}
  // `on_device` has one element.
  explicit DeferredScalar(at::Tensor on_device) : on_device_(std::move(on_device)) {}

  double value() const;
  // The number while it is on its device; undefined once it has been read.
  const at::Tensor& on_device() const { return on_device_; }
  operator double() const { return value(); }

 private:
  mutable at::Tensor on_device_;  // Undefined once it has been read.
  mutable double value_ = 0;
};

}  // namespace hasten
