#include "base/control_groups.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "hasten/base/text.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

void append_with_ancestors(std::vector<fs::path>& folders, const fs::path& top,
                           const std::string& group) {
  for (fs::path below = fs::path(group).lexically_normal().relative_path();;
       below = below.parent_path()) {
    folders.push_back(top / below);
    if (below.empty()) return;
  }
}

// The names of files and of fields in memory.stat in one version of control groups.
struct GroupFiles {
  const char *limit, *used, *inactive, *active;
};
constexpr GroupFiles kVersions[] = {
    {"memory.max", "memory.current", "inactive_file", "active_file"},
    {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file"}};

// Returns the number in a file, or nothing if the file says "max" or does not exist.
std::optional<std::int64_t> bytes_in_file(const fs::path& path) {
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

std::optional<std::int64_t> memory_left_in(const fs::path& group, const GroupFiles& names) {
  const auto limit = bytes_in_file(group / names.limit), used = bytes_in_file(group / names.used);
  if (!limit || !used) return std::nullopt;
  const std::int64_t unreclaimable = *used - file_pages(group / "memory.stat", names);
  return std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, unreclaimable));
}

}  // namespace

std::vector<fs::path> control_groups(const fs::path& root, std::string_view controller) {
  const fs::path top = root / "sys/fs/cgroup";
  std::vector<fs::path> folders;
  std::string unified = "/";
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    // Version 2: "0::/pods/train". Version 1: "4:memory,cpu:/pods/train".
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string path = line.substr(second + 1);
    const auto controllers = split(line.substr(first + 1, second - first - 1), ',');
    if (starts_with(line, "0::")) unified = path;
    if (std::find(controllers.begin(), controllers.end(), controller) != controllers.end())
      append_with_ancestors(folders, top / controller, path);
  }
  append_with_ancestors(folders, top, unified);
  return folders;
}

std::optional<std::int64_t> memory_allowance(const fs::path& root) {
  std::optional<std::int64_t> minimum;
  for (const fs::path& group : control_groups(root, "memory")) {
    for (const GroupFiles& names : kVersions) {
      const auto allowance = memory_left_in(group, names);
      if (allowance && (!minimum || *allowance < *minimum)) minimum = allowance;
    }
  }
  return minimum;
}

}  // namespace hasten
