// File: machine/cpu_instructions.h (internal)
// Reads which instruction sets this CPU has.
//
//   if (has_cpu_instructions({"avx512_bf16", "amx_bf16"})) ...
//
// Thread rule: a pure function.
#pragma once

#include <string>
#include <vector>

#include "base/internal_api.h"

namespace hasten {

// Returns those of the instruction sets that this CPU has, by the names of /proc/cpuinfo. Empty if
// the system does not list them, as on ARM.
HASTEN_INTERNAL_API std::vector<std::string> cpu_instructions_among(
    const std::vector<std::string>& names);
// Returns whether this CPU has one of the instruction sets.
HASTEN_INTERNAL_API bool has_cpu_instructions(const std::vector<std::string>& names);

}  // namespace hasten
