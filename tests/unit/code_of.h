// Returns the code of the error that a call throws, or "none" if it throws nothing.
#pragma once

#include <string>

#include "hasten/base/error.h"

namespace hasten {

template <class Call>
std::string code_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return "none";
}

}  // namespace hasten
