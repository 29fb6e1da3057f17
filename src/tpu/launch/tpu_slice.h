// File: tpu/launch/tpu_slice.h (internal)
// Derives what torch_tpu has to know about processes that run programs on their TPUs together, from
// the variables that the user sets. The launcher derives it for its ranks. A process that a
// different launcher has started derives it for itself.
//
//   const TpuSlice slice(worker.num_machines, worker.local_world_size, environment);
//   if (const auto hosts = slice.hosts()) use(slice.addresses(*hosts, slice.base_port().value()));
//
// Throws nothing but std::bad_alloc. Thread rule: any thread; the environment has to outlive it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/internal_api.h"
#include "launch/variables.h"

namespace hasten {

inline constexpr const char* kTpuTopology = "TORCH_TPU_TOPOLOGY";
inline constexpr const char* kTpuAddresses = "TORCH_TPU_SLICEBUILDER_ADDRESSES";
inline constexpr const char* kTpuHosts = "TPU_WORKER_HOSTNAMES";
inline constexpr const char* kTpuBasePort = "TORCH_TPU_BASE_PORT";

class HASTEN_INTERNAL_API TpuSlice {
 public:
  // `processes` is the number of processes on each machine.
  TpuSlice(std::int64_t num_machines, std::int64_t processes,
           const config::Environment& environment)
      : num_machines_(num_machines), processes_(processes), variables_(environment) {}

  // Returns the hosts of the machines in the order of their ranks. Returns nullopt if there are
  // several machines and the variable does not name exactly one host for each.
  std::optional<std::vector<std::string>> hosts() const;
  // Returns the port of each machine's first process, by default torch_tpu's 8070. Returns nullopt
  // if the variable is not a port, or is too high for the ports of all processes.
  std::optional<std::int64_t> base_port() const;
  std::int64_t highest_base_port() const { return 65536 - processes_; }
  // Returns the addresses of all processes, by rank. On each machine the ports are consecutive.
  std::string addresses(const std::vector<std::string>& hosts, std::int64_t base_port) const;
  // Returns whether there are several machines and the topology of all chips is not set. It cannot
  // be derived.
  bool needs_topology() const { return num_machines_ > 1 && !variables_.has(kTpuTopology); }

 private:
  std::int64_t num_machines_, processes_;
  Variables variables_;
};

}  // namespace hasten
