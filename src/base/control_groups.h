// File: base/control_groups.h (internal)
// Reads the control groups that limit this process, for example in a container.
//
//   for (const fs::path& folder : control_groups("/", "cpu")) read(folder / "cpu.max");
//   const auto left = memory_allowance();
//   if (left && *left < bytes) ...
//
// All paths are below `root`, so that a test can describe other machines. Throws only for lack of
// memory. Thread rule: any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "base/internal_api.h"

namespace hasten {

// Returns the folders of the groups. For "memory", these are folders of version 2 in sys/fs/cgroup
// and of version 1 in sys/fs/cgroup/memory. The folders of each version go from the innermost group
// up to the root. In a container the path of a group may not exist; the folders above it are still
// included. Any folder may lack a file.
std::vector<std::filesystem::path> control_groups(const std::filesystem::path& root,
                                                  std::string_view controller);

// Returns how many more bytes of memory the groups allow, or nothing if there is no limit. The
// kernel kills a process that uses more, without an error that it could handle. File pages that the
// system can drop count as free: otherwise a container that has read a large data set would seem to
// have no memory left.
HASTEN_INTERNAL_API std::optional<std::int64_t> memory_allowance(
    const std::filesystem::path& root = "/");

}  // namespace hasten
