// File: tpu/commands/predicted_tpu.h (internal)
// The predictions of `hasten estimate --tpu TOPOLOGY` and of `hasten plan --what_if --tpu
// TOPOLOGY`. libtpu compiles the programs of a step, so it must be found before anything else.
//
//   predicted_tpu().parse("v5e:2x2");            // "tpu:v5e:2x2"
//   predicted_tpu().variables(site_packages);    // throws IoError "device.tpu-compiler"
//
// Thread rule: any thread.
#pragma once

#include "commands/predicted_device.h"

namespace hasten {

const PredictedDevice& predicted_tpu();

}  // namespace hasten
