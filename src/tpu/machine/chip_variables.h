// File: tpu/machine/chip_variables.h (internal)
// The variables that list the chips for the processes of a machine (config::tpu_chips).
//
//   config::chip_variable_of({{"TPU_VISIBLE_CHIPS", "2,3"}});    // "TPU_VISIBLE_CHIPS"
//
// Thread rule: a pure function. It throws only if memory runs out.
#pragma once

#include <string>

#include "options/variable_of.h"

namespace hasten::config {

// The first of them that is not empty lists the chips.
inline constexpr const char* kChipVariables[] = {"TPU_VISIBLE_DEVICES", "TPU_VISIBLE_CHIPS"};

// Returns the name of the variable that lists the chips, or an empty text if none does.
inline std::string chip_variable_of(const Environment& environment) {
  for (const char* const name : kChipVariables)
    if (!variable_of(environment, name).empty()) return name;
  return "";
}

}  // namespace hasten::config
