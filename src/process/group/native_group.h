// File: process/group/native_group.h (internal)
// Makes c10d's process group. CPU tensors use Gloo. Tensors of another device use the device's own
// backend (device/collective_backend.h), or else Gloo with copies in host memory. Thread rule: any
// thread.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "hasten/process/group.h"
#include "process/group/store_setup.h"
#include "process/watch/call_log.h"

namespace hasten {

// `calls` records the group's collectives. Throws c10::Error, IoError "process.rank-missing", what
// the device's backend throws (UsageError "process.no-nccl", ConfigError "process.encryption" and
// others) and what the store throws.
c10::intrusive_ptr<c10d::ProcessGroup> native_group(const StoreSetup& setup, int rank, int size,
                                                    const GroupOptions& options,
                                                    std::shared_ptr<CallLog> calls);

}  // namespace hasten
