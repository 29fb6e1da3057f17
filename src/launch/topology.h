// File: launch/topology.h (internal)
// The processors of a machine as the kernel describes them: the CPUs of each core, the cores near
// each memory and each GPU, and the part of them that this process may use.
//
//   const Topology topology = topology_of("/", usable_cpus());
//
// It is read from files below `root`, so that a test can describe machines that do not exist. If
// the kernel does not report something, the simplest machine is assumed: one node, cores without
// siblings, no limit. Thread rule: any thread. Throws only for lack of memory.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "base/internal_api.h"

namespace hasten {

struct PhysicalCore {
  std::vector<int> cpus;  // its usable hyperthreads, as the kernel numbers them
  int node = 0;           // its NUMA node
};

struct Topology {
  std::vector<PhysicalCore> cores;  // by node, then by number
  std::vector<int> gpu_nodes;       // the node of each GPU in the driver's order; -1 if unknown
  double quota = 0;                 // the CPUs that the control groups allow; 0 means no limit
};

HASTEN_INTERNAL_API Topology topology_of(const std::filesystem::path& root,
                                         const std::vector<int>& usable_cpus);

// Returns the CPUs on which the system lets this process run.
HASTEN_INTERNAL_API std::vector<int> usable_cpus();

// Turns "0-3,8" into 0 1 2 3 8. Stops at the first mistake and returns the numbers before it.
std::vector<int> parse_number_list(std::string_view text);

}  // namespace hasten
