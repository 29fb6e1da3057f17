// File: hasten/options/machines.h
// The machines of a launch according to its options: how many, where they meet, and which one this
// is.
//
//   const LaunchOptions options{
//       .num_machines = 4, .machine_rank = 1, .main_process_ip = "10.0.0.1"};
//   resolve_machines(options).port;      // 29500
//
// There are two ways to meet, as in Accelerate and torchrun. Static: the number of machines is
// fixed, each is given its rank, and all meet at machine 0. By endpoint (rdzv_endpoint, or
// rdzv_backend c10d): all have the same options, and the machine with that address serves the
// others; their number may then be a range (nnodes 2:4).
//
// Needs no torch. Throws ConfigError "config.*". Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

namespace hasten {

struct LaunchOptions;

struct Machines {
  // The smallest and the largest number of machines.
  std::int64_t min_count = 1;
  std::int64_t max_count = 1;
  std::int64_t rank = -1;  // From 0; -1: assigned when the machines meet.
  std::string host;        // Where the machines meet; empty with one machine.
  int port = 0;            // The port there. With one machine: MASTER_PORT; 0: a free port.
  bool has_several() const { return max_count > 1; }
};

inline constexpr int kRendezvousPort = 29500;  // The default of Accelerate and torchrun.

// Combines the options, and throws if they contradict each other or if one is missing.
Machines resolve_machines(const LaunchOptions& options);

}  // namespace hasten
