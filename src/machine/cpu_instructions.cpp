#include "machine/cpu_instructions.h"

#include <algorithm>
#include <fstream>

#include "hasten/base/text.h"

namespace hasten {

std::vector<std::string> cpu_instructions_among(const std::vector<std::string>& names) {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line;
  do {
    if (!std::getline(cpuinfo, line)) return {};
  } while (!starts_with(line, "flags"));
  const std::vector<std::string> flags = split(line, ' ');
  std::vector<std::string> found;
  std::copy_if(names.begin(), names.end(), std::back_inserter(found), [&](const std::string& name) {
    return std::find(flags.begin(), flags.end(), name) != flags.end();
  });
  return found;
}

bool has_cpu_instructions(const std::vector<std::string>& names) {
  return !cpu_instructions_among(names).empty();
}

}  // namespace hasten
