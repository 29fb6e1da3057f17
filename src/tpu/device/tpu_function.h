// File: tpu/device/tpu_function.h (internal)
// Finds functions in hasten's module for TPUs, which is a separate library because it needs Python.
//
//   tpu_function<Open>("hasten_tpu_open")(chips);
//
// Throws IoError "device.tpu-module" if the module or the function is missing.
#pragma once

#include <string>

#include "device/loadable_module.h"

namespace hasten {

// Returns the function, or the reason why it is missing. Does not throw the error for that.
template <class Function>
Module<Function> find_tpu_function(const char* name) {
  return load_module<Function>("libhasten_tpu.so", name);
}

[[noreturn]] void throw_tpu_missing(const std::string& missing);

template <class Function>
Function& tpu_function(const char* name) {
  const auto found = find_tpu_function<Function>(name);
  if (found.function == nullptr) throw_tpu_missing(found.missing);
  return *found.function;
}

}  // namespace hasten
