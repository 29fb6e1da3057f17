// File: process/gloo.h (internal)
// c10d's Gloo backend, whose all_reduce (of sums), all_gather and broadcast are made in shared
// memory where the ranks are of one machine and all can open it. They take their places among
// Gloo's own collectives: the same threads run them. Messages go over connections of the job alone
// (process/gloo_transport.h). It also takes ReduceOp::PREMUL_SUM, which Gloo itself refuses.
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "process/rank_options.h"

namespace hasten {

struct GlooSettings {
  // This machine's, at which the others reach it, unless GLOO_SOCKET_IFNAME names an interface.
  std::string address;
  std::string token;                    // that strangers do not know; empty: rank 0 makes one up
  bool encrypt = false;                 // what goes to another machine
  std::chrono::milliseconds timeout{};  // to meet; the rank's limit is that of each collective
  bool shared_memory = true;            // false: all collectives are messages
  // Of the tensors that this rank will give: those of a GPU are messages, so where ranks differ all
  // tensors are.
  std::string device_type = "cpu";
};

// All ranks call it, with a store of its own, and are connected to each other when it returns.
// Throws c10::Error, what the store and rendezvous/mesh.h throw, and ConfigError
// "process.interface" for a GLOO_SOCKET_IFNAME that names none with an address.
c10::intrusive_ptr<c10d::Backend> gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                               const RankOptions& rank,
                                               const GlooSettings& settings);

}  // namespace hasten
