#include "base/control_groups.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "hasten/base/text.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

void append_upwards(std::vector<fs::path>& folders, const fs::path& top, const std::string& group) {
  for (fs::path below = fs::path(group).lexically_normal().relative_path();;
       below = below.parent_path()) {
    folders.push_back(top / below);
    if (below.empty()) return;
  }
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
      append_upwards(folders, top / controller, path);
  }
  append_upwards(folders, top, unified);
  return folders;
}

}  // namespace hasten
