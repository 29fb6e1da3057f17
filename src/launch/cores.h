// File: launch/cores.h (internal)
// Divides a machine's cores among processes. Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/internal_api.h"
#include "launch/topology.h"

namespace hasten {

// Returns the CPUs of each share. No core is split between two shares and no share has cores of two
// NUMA nodes, with two exceptions: if there are more shares than cores, several shares get the same
// core, and if there are fewer shares than nodes, each share gets whole nodes.
//
// `gpus` has the GPU of each share, or is empty. Each share gets cores of its GPU's node, unless
// the node of one of these GPUs is unknown or has no usable cores.
std::vector<std::vector<int>> partition_cores(const Topology& topology, std::size_t shares,
                                              const std::vector<int>& gpus = {});

// Returns the number of threads for each process: the cores (not hyperthreads) within the quota,
// divided by the number of processes, at least 1.
HASTEN_INTERNAL_API std::int64_t threads_per_process(const Topology& topology,
                                                     std::int64_t processes);

}  // namespace hasten
