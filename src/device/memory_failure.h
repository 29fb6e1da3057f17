// File: device/memory_failure.h (internal)
// Recognizes the errors of allocators on any device, and shortens their messages.
//
//   } catch (const std::exception& error) {
//     if (!is_memory_failure(error)) throw;
//     use_less_memory();
//   }
//
// Thread rule: pure functions.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "hasten/base/error.h"

namespace hasten {

// Returns the message without LibTorch's list of functions.
inline std::string message_without_backtrace(const std::exception& error) {
  const auto* const of_libtorch = dynamic_cast<const c10::Error*>(&error);
  return of_libtorch ? of_libtorch->what_without_backtrace() : error.what();
}

// Returns the allocator's message in one line: what was requested and what is free, without
// LibTorch's advice about environment variables.
inline std::string short_message(const std::exception& error) {
  const std::string text = message_without_backtrace(error);
  constexpr std::string_view kSuffix = " is free.";
  const std::size_t end = text.find('\n'), free = text.find(kSuffix);
  return free < end ? text.substr(0, free + kSuffix.size() - 1) : text.substr(0, end);
}

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
