// File: device/memory_failure.h (internal)
// Recognizes the errors of allocators on any device.
//
//   } catch (const std::exception& error) {
//     if (!is_memory_failure(error)) throw;
//     use_less_memory();
//   }
//
// Thread rule: a pure function.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <string>

#include "hasten/base/error.h"

namespace hasten {

// True for LibTorch's errors, std::bad_alloc and hasten's MemoryError.
inline bool is_memory_failure(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const MemoryError*>(&error) != nullptr)
    return true;
  const auto* const of_libtorch = dynamic_cast<const c10::Error*>(&error);
  if (of_libtorch == nullptr) return false;
  const std::string text = of_libtorch->what_without_backtrace();
  return dynamic_cast<const c10::OutOfMemoryError*>(of_libtorch) != nullptr ||
         text.find("can't allocate memory") != std::string::npos ||
         text.find("not enough memory") != std::string::npos;
}

}  // namespace hasten
