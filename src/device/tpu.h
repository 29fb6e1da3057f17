// File: device/tpu.h (internal)
// A TPU as LibTorch's device `tpu`, by Google's torch_tpu, from the module libhasten_tpu.so beside
// libhasten: it is built where Python's headers are, and starts an interpreter of its own when a
// TPU is first asked for. Thread rule: any thread.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "device/tpu_job.h"
#include "hasten/launch/worker.h"

namespace hasten {

// By its PCI devices, each a folder in `devices`. Opens nothing.
bool machine_has_tpu(const std::string& devices = "/sys/bus/pci/devices");
// Whether the TPUs of several processes can run programs together: they are real ones.
bool tpus_go_together();
// Empty where tpu_device() has a module to load and something to open; else what is missing. Looks
// at files only.
std::string why_no_tpu();
// Opens the machine's TPU at the first call, which takes some seconds; how, the first call says for
// all. Throws IoError "device.tpu-missing", "device.tpu-module", "device.tpu-package",
// "device.tpu-versions", "device.tpu-busy", "device.tpu-failed", UsageError "device.tpu-forked",
// "device.tpu-index".
at::Device tpu_device(std::int64_t index = 0);
// Its own chip for each process of a job. `together` returns once all have called it. Also throws
// UsageError "device.tpu-chips", ConfigError "device.tpu-job".
at::Device tpu_device_of(const Worker& worker, TpuJob job);
// Whether tpu_device() has been called in this process, and gave one.
bool tpu_is_open();
// Until it has done what this process has asked of it.
void wait_for_tpu(at::Device device);
// How many programs this process has had compiled for its TPU so far; 0 where none is open.
std::int64_t tpu_programs();

}  // namespace hasten
