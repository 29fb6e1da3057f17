// File: tpu/device/opened_tpu.h (internal)
// A TPU as LibTorch's device `tpu`, by Google's torch_tpu. It comes from the module
// libhasten_tpu.so next to libhasten, which is built only if Python's headers are installed, and
// which starts a Python interpreter of its own when a TPU is first requested.
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

// Returns whether the machine has a TPU, by its PCI devices, the folders in `devices`. Opens
// nothing.
bool machine_has_tpu(const std::string& devices = "/sys/bus/pci/devices");
// Returns whether several processes' TPUs can run programs together, which only real ones can.
bool tpus_can_run_together();
// Returns what tpu_device() lacks to open a TPU; empty: nothing. Loads the module, opens no device.
HASTEN_INTERNAL_API std::string missing_tpu_reason();
// Returns device `index`. The first call opens the TPU, which takes some seconds, and decides for
// the process how. Throws IoError "device.tpu-missing", "device.tpu-module", "device.tpu-package",
// "device.tpu-versions", "device.tpu-busy", "device.tpu-failed", UsageError "device.tpu-forked",
// "device.tpu-index".
HASTEN_INTERNAL_API at::Device tpu_device(std::int64_t index = 0);
// Throws UsageError "device.tpu-index" unless `index` is that of one of `count` devices.
void check_tpu_index(std::int64_t index, std::int64_t count);
// Returns the device of a process of a job, which has a chip of its own. `one_slice` blocks until
// all processes have called it. Also throws UsageError "device.tpu-chips", ConfigError
// "device.tpu-job".
HASTEN_INTERNAL_API at::Device tpu_device_of(const Worker& worker, TpuJob job);
// Returns whether tpu_device() has opened the TPU in this process.
bool tpu_is_open();
// Returns how many programs have been compiled for this process's TPU so far; 0 if none is open.
std::int64_t compiled_tpu_programs();

}  // namespace hasten
