#include "base/available_memory.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "base/control_groups.h"

namespace hasten {

std::optional<std::uintmax_t> available_memory() {
  std::ifstream file("/proc/meminfo");
  std::optional<std::uintmax_t> available;
  std::string name, unit;
  for (std::uintmax_t kibibytes = 0; file >> name >> kibibytes; std::getline(file, unit)) {
    if (name == "MemAvailable:") available = kibibytes * 1024;
  }
  const auto allowance = memory_allowance();
  if (!allowance) return available;
  const auto allowed = static_cast<std::uintmax_t>(*allowance);
  return std::min(available.value_or(allowed), allowed);
}

}  // namespace hasten
