// File: process/native_group.h (internal)
// c10d's group: Gloo for the tensors of the CPU, NCCL for those of a GPU and tpu_dist for those of
// a TPU, or Gloo by way of the CPU.
#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "hasten/process/group.h"
#include "process/call_log.h"

namespace hasten {

// `address`: this machine's, at which the other ranks reach it; GLOO_SOCKET_IFNAME's interface
// instead where the variable is set. Its collectives are noted in `calls`. Throws c10::Error,
// hasten's errors of the store.
c10::intrusive_ptr<c10d::ProcessGroup> native_group(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int rank, int size, const std::string& address,
                                                    const GroupOptions& options,
                                                    std::shared_ptr<CallLog> calls);

}  // namespace hasten
