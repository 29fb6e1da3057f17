// File: process/native_group.h (internal)
// c10d's group: Gloo for the tensors of the CPU, NCCL for those of a GPU and tpu_dist for those of
// a TPU, or Gloo by way of the CPU.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "hasten/process/group.h"
#include "process/call_log.h"
#include "process/meeting.h"

namespace hasten {

// Its collectives are noted in `calls`. Throws c10::Error, IoError "process.rank-missing", and what
// the store throws.
c10::intrusive_ptr<c10d::ProcessGroup> native_group(const Meeting& meeting, int rank, int size,
                                                    const GroupOptions& options,
                                                    std::shared_ptr<CallLog> calls);

}  // namespace hasten
