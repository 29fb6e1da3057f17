// File: base/control_groups.h (internal)
// The folders of the control groups that limit this process, whatever the version: for "memory",
// those of version 2 in sys/fs/cgroup, and those of version 1 in sys/fs/cgroup/memory.
//
//   for (const fs::path& folder : control_groups("/", "cpu")) read(folder / "cpu.max");
//
// The innermost first, up to the root of each version. In a container a group may have a path that
// does not exist there; the folders above it are among the result all the same, and a file may be
// missing in any of them. Made from files below `root`, so that a test describes machines that are
// not there. Thread rule: any thread. Nothing throws but for lack of memory.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace hasten {

std::vector<std::filesystem::path> control_groups(const std::filesystem::path& root,
                                                  std::string_view controller);

}  // namespace hasten
