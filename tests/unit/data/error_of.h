// The code and text of the error that a call throws, or "none"; and a search in that text.
#pragma once

#include <string>

#include "hasten/base/error.h"

namespace hasten {

template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code() + " | " + error.what();
  }
  return "none";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace hasten
