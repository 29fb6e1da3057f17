// File: process/gloo.h (internal)
// c10d's Gloo backend, whose all_reduce (of sums), all_gather and broadcast are made in shared
// memory where the ranks are of one machine and all can open it. They take their places among
// Gloo's own collectives: the same threads run them. It also takes ReduceOp::PREMUL_SUM, which Gloo
// itself refuses.
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "process/rank_options.h"

namespace hasten {

struct GlooSettings {
  // This machine's, at which the others reach it; GLOO_SOCKET_IFNAME's interface instead where the
  // variable is set.
  std::string address;
  std::chrono::milliseconds timeout{};  // to meet; the rank's limit is that of each collective
  bool shared_memory = true;            // false: all collectives are messages
  // Of the tensors that this rank will give: those of a GPU are messages, so where ranks differ all
  // tensors are.
  std::string device_type = "cpu";
};

// All ranks call it, with a store of its own, and are connected to each other when it returns.
// Throws c10::Error, what the store does.
c10::intrusive_ptr<c10d::Backend> gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                               const RankOptions& rank,
                                               const GlooSettings& settings);

}  // namespace hasten
