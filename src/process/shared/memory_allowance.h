// File: process/shared/memory_allowance.h (internal)
// Determines how much more memory the control groups of this process allow, for example in a
// container. The kernel kills a process that uses more, without an error that it could handle.
//
//   const auto left = memory_allowance();
//   if (left && *left < bytes) ...
//
// File pages that the system can drop count as free: otherwise a container that has read a large
// data set would seem to have no memory left. Thread rule: any thread. Throws nothing but
// std::bad_alloc.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace hasten {

// Returns a number of bytes, or nothing if there is no limit. It is read from files below `root`,
// so that a test can describe other containers.
std::optional<std::int64_t> memory_allowance(const std::filesystem::path& root = "/");

}  // namespace hasten
