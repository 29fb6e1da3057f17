// File: process/memory_allowance.h (internal)
// How much more memory the control groups of this process let it have, as in a container. The
// kernel ends a process that takes more, without an error that it could handle.
//
//   const auto left = memory_allowance();
//   if (left && *left < bytes) ...
//
// Pages of files that the system can drop count as free: a container that has read a large data set
// has no others left. Thread rule: any thread. Nothing throws but for lack of memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace hasten {

// Bytes; none: no limit. Made from files below `root`, so that a test describes other containers.
std::optional<std::int64_t> memory_allowance(const std::filesystem::path& root = "/");

}  // namespace hasten
