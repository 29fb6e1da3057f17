// File: hasten/anatomy/dry_tpu.h
// The real program on device tpu, on a machine without a TPU: each of its programs is compiled for
// a topology by the TPU's own compiler, libtpu, which the user installs; none is run. An account is
// kept of the memory that tensors, temporaries and code take on the device.
//
//   DryTpu dry("v5e:2x2");                              // before the Accelerator
//   Accelerator accelerator({.tpu = true});
//   ...                                                 // the loop as it is
//   std::cout << anatomy::to_text(dry.account());
//
// Operators run in the program's order (TORCH_TPU_LAUNCH_BLOCKING), unless the environment says
// TORCH_TPU_DEFER_AND_FUSE=1. Numbers read back are stand-ins: 1, or true. Models are made on the
// host for real. Once in a process: its device stays a dry one; a second, of another topology, is
// UsageError "device.tpu-dry-twice". Throws ConfigError "config.unknown-device", IoError
// "device.tpu-compiler", "device.tpu-module" before anything is opened.
//
// Thread rule: the thread that trains.
#pragma once

#include <memory>
#include <string>

#include "hasten/anatomy/tpu_account.h"
#include "hasten/prepare/step_observer.h"

namespace hasten {

class DryTpu {
 public:
  // `compiler` is libtpu.so; empty: HASTEN_DRY_TPU_COMPILER, else as find_libtpu does.
  explicit DryTpu(const std::string& topology, const std::string& compiler = "");
  DryTpu(const DryTpu&) = delete;
  DryTpu& operator=(const DryTpu&) = delete;
  ~DryTpu();

  // The one there is, or null.
  static DryTpu* active();
  // The phases of this Accelerator's steps; every Accelerator that is made meanwhile does it.
  void listen_to(StepObservers& observers);
  // The end of a step that no optimizer ends: one of inference.
  void step();
  std::int64_t steps() const;
  // So far. Opens the device where nobody has.
  anatomy::TpuAccount account() const;

 private:
  class Listener;
  std::shared_ptr<Listener> listener_;
};

}  // namespace hasten
