// File: process/backend/gloo.h (internal)
// c10d's Gloo backend, with all_reduce (of sums), all_gather and broadcast in shared memory if all
// ranks are on one machine and can open it. These are queued with Gloo's own collectives and run in
// the same threads. Messages go over connections that only the job's ranks have
// (process/backend/gloo_transport.h). The backend also accepts ReduceOp::PREMUL_SUM, which Gloo
// itself refuses.
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "process/consensus/store_exchange.h"

namespace hasten {

struct GlooSettings {
  // The address at which other machines reach this one. An interface named by GLOO_SOCKET_IFNAME
  // takes precedence.
  std::string address;
  std::string token;                    // the ranks' secret; if empty, rank 0 generates one
  bool encrypt = false;                 // messages to other machines
  std::chrono::milliseconds timeout{};  // to connect; collectives have RankOptions::limit
  bool shared_memory = true;            // false: all collectives are messages
  // The device of this rank's tensors. Tensors of a GPU are sent as messages. If the ranks' device
  // types differ, all tensors are.
  std::string device_type = "cpu";
};

// All ranks must call it, with a store that nothing else uses. They are connected to each other
// when it returns. Throws c10::Error, what the store and rendezvous/mesh.h throw, and ConfigError
// "process.interface" if GLOO_SOCKET_IFNAME names no interface that has an address.
c10::intrusive_ptr<c10d::Backend> gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                               const RankOptions& rank,
                                               const GlooSettings& settings);

}  // namespace hasten
