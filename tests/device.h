// The device of tests that compare results with recorded numbers, and the folder of the recordings.
//
//   HASTEN_TEST_DEVICE=cuda HASTEN_TEST_FOLDER=/tmp/kit/tests oracle_tests --source-file=*models_test.cpp
//
// Without these variables the device is the CPU, and the folder is the one in the source tree. Such
// a test copies its results back to the CPU, where the recorded numbers are.
#pragma once

#include <c10/core/Device.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "hasten/device/cuda_library.h"

namespace hasten::tested {

inline std::string variable_or(const char* name, const char* usual) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : usual;
}

inline at::Device opened(at::Device device) {
  if (!device.is_cpu()) load_cuda_library();
  return device;
}

inline at::Device device() {
  static const at::Device one = opened(at::Device(variable_or("HASTEN_TEST_DEVICE", "cpu")));
  return one;
}

// Opens the device before the first test. LibTorch starts autograd's threads, one per device, in
// the first backward pass of the process, and that pass may run on the CPU.
inline const at::Device kOpenedAtStart = device();

inline std::filesystem::path folder() {
  return variable_or("HASTEN_TEST_FOLDER", HASTEN_TEST_DATA);
}

// Returns the limit for a difference on this device. The given limit is for the CPU, on which the
// numbers were recorded. A GPU adds in a different order and has different math functions.
inline double limit(double of_cpu) {
  constexpr double kOfOtherDevices = 10;
  return device().is_cpu() ? of_cpu : kOfOtherDevices * of_cpu;
}

}  // namespace hasten::tested
