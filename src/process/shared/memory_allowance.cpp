#include "process/shared/memory_allowance.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "base/control_groups.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

// The names of files and of fields in memory.stat in one version of control groups.
struct GroupFiles {
  const char *limit, *used, *inactive, *active;
};
constexpr GroupFiles kVersions[] = {
    {"memory.max", "memory.current", "inactive_file", "active_file"},
    {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file"}};

// Returns the number in a file, or nothing if the file says "max" or does not exist.
std::optional<std::int64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

std::int64_t file_pages(const fs::path& path, const GroupFiles& names) {
  std::ifstream file(path);
  std::int64_t sum = 0, bytes = 0;
  for (std::string name; file >> name >> bytes;) {
    if (name == names.inactive || name == names.active) sum += bytes;
  }
  return sum;
}

std::optional<std::int64_t> allowance_of(const fs::path& group, const GroupFiles& names) {
  const auto limit = number_in(group / names.limit), used = number_in(group / names.used);
  if (!limit || !used) return std::nullopt;
  const std::int64_t held = *used - file_pages(group / "memory.stat", names);
  return std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, held));
}

}  // namespace

std::optional<std::int64_t> memory_allowance(const fs::path& root) {
  std::optional<std::int64_t> least;
  for (const fs::path& group : control_groups(root, "memory")) {
    for (const GroupFiles& names : kVersions) {
      const auto allowance = allowance_of(group, names);
      if (allowance && (!least || *allowance < *least)) least = allowance;
    }
  }
  return least;
}

}  // namespace hasten
