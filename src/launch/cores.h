// File: launch/cores.h (internal)
// A machine's cores divided among processes. Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "launch/topology.h"

namespace hasten {

// The CPUs of each share. No core is split between two shares and no share has cores of two nodes,
// as far as there are enough of them: with more shares than cores several have the same one, with
// fewer shares than nodes each has whole nodes.
//
// `gpus` has the GPU of each share, or is empty: shares of a GPU have cores of its node, as far as
// all of their nodes are known and have cores that may be used.
std::vector<std::vector<int>> shares_of_cores(const Topology& topology, std::size_t shares,
                                              const std::vector<int>& gpus = {});

// Threads for each of the processes: cores divided, not their hyperthreads, and not more than the
// quota leaves.
std::int64_t threads_each(const Topology& topology, std::int64_t processes);

}  // namespace hasten
