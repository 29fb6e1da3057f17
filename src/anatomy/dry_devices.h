// File: anatomy/dry_devices.h (internal)
// Refuses operators whose tensors are on several devices, as a GPU does. Without this a dry run
// would predict the step of a program that fails in its first operator on a real GPU.
//
//   check_same_device("aten::addmm", arguments);  // throws if one is on the CPU and one on the GPU
//
// A tensor without dimensions on the CPU counts as a number and may be used with tensors of a GPU.
// Source: LibTorch's common_device_check_failure and TensorIterator::compute_types. Thread rule:
// any thread.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>

namespace hasten::anatomy {

// Throws UsageError "anatomy.several-devices" if an operator of LibTorch gets a tensor on a GPU and
// one with dimensions on the CPU. Copies and indexing accept such tensors.
void check_same_device(const std::string& name, c10::ArrayRef<c10::IValue> arguments);

}  // namespace hasten::anatomy
