// File: tpu/launch/tpu_launch_device.h (internal)
// The processes and the variables of a launch on TPUs (launch/launch_device.h). Thread rule: that
// of LaunchDevice.
#pragma once

#include "launch/launch_device.h"

namespace hasten {

const LaunchDevice& tpu_launch_device();

}  // namespace hasten
