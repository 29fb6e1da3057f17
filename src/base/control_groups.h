// File: base/control_groups.h (internal)
// Returns the folders of the control groups that limit this process: for "memory", those of version
// 2 in sys/fs/cgroup and those of version 1 in sys/fs/cgroup/memory.
//
//   for (const fs::path& folder : control_groups("/", "cpu")) read(folder / "cpu.max");
//
// Each version's folders go from the innermost group up to the root. In a container the path of a
// group may not exist; the folders above it are included all the same, and any of them may lack a
// file. All paths are below `root`, so that a test can describe other machines. Throws only for
// lack of memory. Thread rule: any thread.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace hasten {

std::vector<std::filesystem::path> control_groups(const std::filesystem::path& root,
                                                  std::string_view controller);

}  // namespace hasten
