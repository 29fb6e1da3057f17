// File: tpu/device/opened_tpu.h (internal)
// A TPU as LibTorch's device `tpu`, provided by Google's torch_tpu. The module libhasten_tpu.so
// next to libhasten opens it. The module is built only if Python's headers are installed. It starts
// a Python interpreter of its own when a TPU is first requested.
//
// Thread rule: any thread.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "base/internal_api.h"
#include "hasten/launch/worker.h"
#include "tpu/device/tpu_job.h"

namespace hasten {

// Returns whether the machine has a TPU among its PCI devices, which are the folders in `devices`.
// Opens no device.
bool machine_has_tpu(const std::string& devices = "/sys/bus/pci/devices");
// Returns whether the TPUs of several processes can run programs together. Only real TPUs can.
bool tpus_can_communicate();
// Returns what tpu_device() lacks to open a TPU, or an empty string if it lacks nothing. Loads the
// module, but opens no device.
HASTEN_INTERNAL_API std::string unusable_tpu_reason();
// Returns device `index`. The first call opens the TPU, which takes some seconds. It decides for
// the whole process how the TPU is opened. Throws IoError "device.tpu-missing",
// "device.tpu-module", "device.tpu-package", "device.tpu-versions", "device.tpu-busy",
// "device.tpu-failed", UsageError "device.tpu-forked", "device.tpu-index".
HASTEN_INTERNAL_API at::Device tpu_device(std::int64_t index = 0);
// Throws UsageError "device.tpu-index" unless `index` is from 0 to `count` - 1.
void check_tpu_index(std::int64_t index, std::int64_t count);
// Returns the device of a process of a job, which has a chip of its own. With TpuJob::one_slice, it
// blocks until all processes have called it. It also throws UsageError "device.tpu-chips" and
// ConfigError "device.tpu-job".
HASTEN_INTERNAL_API at::Device tpu_device_of(const Worker& worker, TpuJob job);
// Returns whether tpu_device() has opened the TPU in this process.
bool tpu_is_open();
// Returns how many programs have been compiled for this process's TPU so far, or 0 if no TPU is
// open.
std::int64_t compiled_tpu_programs();

}  // namespace hasten
