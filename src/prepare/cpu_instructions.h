// File: prepare/cpu_instructions.h (internal)
// Reads which instruction sets this CPU has.
//
//   if (has_cpu_instructions({"avx512_bf16", "amx_bf16"})) ...
//
// Thread rule: a pure function.
#pragma once

#include <fstream>
#include <initializer_list>
#include <string>

namespace hasten {

// Returns whether this CPU has one of these instruction sets, by the names of /proc/cpuinfo. False
// if the system does not list them, as on ARM.
inline bool has_cpu_instructions(std::initializer_list<const char*> names) {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.rfind("flags", 0) != 0) continue;
    for (const char* const name : names)
      if (line.find(name) != std::string::npos) return true;
    return false;
  }
  return false;
}

}  // namespace hasten
