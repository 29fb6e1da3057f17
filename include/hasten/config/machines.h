// File: hasten/config/machines.h
// The machines of a launch, as its options say: how many, where they meet, and which one this is.
//
//   machines_of({.num_machines = 4, .machine_rank = 1, .main_process_ip = "10.0.0.1"})
//
// Two ways, as Accelerate and torchrun have them. Static: a fixed number, each is told its rank,
// and machine 0 is where all meet. By endpoint (rdzv_endpoint, or rdzv_backend c10d): all are told
// the same, and the one whose address it is serves the others; their number may then lie between
// two (nnodes 2:4).
//
// Needs no torch. Throws ConfigError "config.*". Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

namespace hasten {

struct LaunchOptions;

struct Machines {
  std::int64_t least = 1;
  std::int64_t most = 1;
  std::int64_t rank = -1;  // -1: given when they meet
  std::string host;        // where they meet; empty: there is one machine
  int port = 0;            // there; 0 with one machine: any
  bool several() const { return most > 1; }
};

inline constexpr int kRendezvousPort = 29500;  // the peers' default

Machines machines_of(const LaunchOptions& options);

}  // namespace hasten
