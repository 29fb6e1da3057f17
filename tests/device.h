// The device of tests that compare results with recorded numbers, and the folder of the recordings.
//
//   HASTEN_TEST_DEVICE=cuda HASTEN_TEST_FOLDER=/tmp/kit/tests oracle_tests --source-file=*models_test.cpp
//
// Without these variables the device is the CPU, and the folder is the one in the source tree. Such
// a test copies its results back to the CPU, where the recorded numbers are.
#pragma once

#include <ATen/Context.h>
#include <c10/core/Device.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "hasten/device/cuda_library.h"

namespace hasten::tested {

inline std::string variable_or(const char* name, const char* usual) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : usual;
}

// Also makes float products exact, as on the CPU: cuDNN would round the factors of convolutions and
// of recurrent layers to TF32.
inline at::Device opened(at::Device device) {
  if (device.is_cpu()) return device;
  load_cuda_library();
  for (const auto each : {at::Float32Op::MATMUL, at::Float32Op::CONV, at::Float32Op::RNN})
    at::globalContext().setFloat32Precision(at::Float32Backend::CUDA, each,
                                            at::Float32Precision::IEEE);
  return device;
}

inline at::Device device() {
  static const at::Device one = opened(at::Device(variable_or("HASTEN_TEST_DEVICE", "cpu")));
  return one;
}

// Opens the device before the first test. LibTorch starts autograd's threads, one per device, in
// the first backward pass of the process, and that pass may run on the CPU.
inline const at::Device kOpenedAtStart = device();

// Returns true if the device of the tests is not the CPU, and reports that a part of a test is left
// out there. The kit for GPUs counts these reports.
inline bool needs_cpu(const std::string& part, const std::string& reason) {
  if (device().is_cpu()) return false;
  std::printf("left out on %s: %s, %s\n", device().str().c_str(), part.c_str(), reason.c_str());
  return true;
}

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
