// File: launch/topology.h (internal)
// The processors of a machine as the kernel describes them: which are one core's, which core is
// near which memory and which GPU, and how much of it all this process may use.
//
//   const Topology topology = topology_of("/", usable_cpus());
//
// Made from files below `root`, so that a test describes machines that are not there. What the
// kernel does not say is taken for the simplest machine: one node, cores without siblings, no
// limit. Thread rule: any thread. Nothing throws but for lack of memory.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace hasten {

struct PhysicalCore {
  std::vector<int> cpus;  // its hyperthreads that may be used, as the kernel numbers them
  int node = 0;           // of memory (NUMA)
};

struct Topology {
  std::vector<PhysicalCore> cores;  // by node, then by number
  std::vector<int> gpu_nodes;       // of each GPU in the driver's order; -1: not told
  double quota = 0;                 // CPUs that control groups leave; 0: no limit
};

Topology topology_of(const std::filesystem::path& root, const std::vector<int>& usable_cpus);

// What the system lets this process run on.
std::vector<int> usable_cpus();

// "0-3,8" gives 0 1 2 3 8; what is no list gives what stands before the mistake.
std::vector<int> numbers_of_list(std::string_view text);

}  // namespace hasten
