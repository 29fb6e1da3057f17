// File: hasten/tpu/anatomy/dry_tpu.h
// Runs a real program on device `tpu` on a machine without a TPU. The TPU's own compiler, libtpu,
// which the user installs, compiles each program for a topology, and no program is run. An estimate
// records the memory that tensors, temporaries and code take on the device.
//
//   DryTpu dry("v5e:2x2");                              // before the Accelerator
//   Accelerator accelerator({.tpu = true});
//   // ... the unchanged training loop ...
//   std::cout << to_text(dry.estimate());
//
// Operators run in the program's order (TORCH_TPU_LAUNCH_BLOCKING), unless
// TORCH_TPU_DEFER_AND_FUSE=1 is set. A number that the program reads back is a placeholder: 1, or
// true. Models are built on the host with real values.
//
// Create it once per process: the process's TPU device stays simulated until the process ends. A
// second DryTpu while one exists, or one for another topology, throws UsageError
// "device.tpu-dry-twice". The constructor throws ConfigError "config.unknown-device" for an unknown
// topology, and IoError "device.tpu-compiler" or "device.tpu-module" for a missing library, before
// any device is opened.
//
// Thread rule: the training thread.
#pragma once

#include <memory>
#include <string>

#include "hasten/base/detail/export.h"
#include "hasten/prepare/detail/step_observer.h"
#include "hasten/tpu/anatomy/detail/tpu_estimate.h"

namespace hasten {

class HASTEN_API DryTpu {
 public:
  // `compiler` is the path of libtpu.so. If empty: HASTEN_DRY_TPU_COMPILER, HASTEN_LIBTPU, or else
  // the file in the Python package libtpu, in VIRTUAL_ENV, PYTHONPATH or LibTorch's own folder of
  // packages.
  explicit DryTpu(const std::string& topology, const std::string& compiler = "");
  DryTpu(const DryTpu&) = delete;
  DryTpu& operator=(const DryTpu&) = delete;
  ~DryTpu();

  // The DryTpu of this process, or null.
  static DryTpu* active();
  // Records the phases of the steps that these observers see. Every Accelerator that is constructed
  // while a DryTpu exists calls it.
  void listen_to(StepObservers& observers);
  // Ends a step that has no optimizer, such as an inference step.
  void step();
  // The number of steps so far.
  std::int64_t steps() const;
  // The estimate so far. Opens the device if the program has not.
  anatomy::TpuEstimate estimate() const;

 private:
  class Listener;
  std::shared_ptr<Listener> listener_;
};

}  // namespace hasten
