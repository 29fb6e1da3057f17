// File: device/known_devices.h (internal)
// The devices that hasten knows. Only device/device.cpp needs it. Thread rule: any thread.
#pragma once

#include "device/device.h"

namespace hasten {

const Device& cpu();
const Device& cuda();
const Device& tpu();

}  // namespace hasten
