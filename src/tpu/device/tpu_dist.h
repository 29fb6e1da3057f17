// File: tpu/device/tpu_dist.h (internal)
// Creates torch_tpu's c10d backend `tpu_dist` in the module libhasten_tpu.so. Its collectives are
// programs that the TPUs of all ranks run together over the links between them. The TPU must be
// open already, as one of this job's TPUs (tpu/device/opened_tpu.h). Thread rule: any thread.
#pragma once

#include "device/collective_backend.h"

namespace hasten {

// make() throws IoError "device.tpu-module", and "device.tpu-failed" with the error of torch_tpu.
const CollectiveBackend& tpu_dist();

}  // namespace hasten
