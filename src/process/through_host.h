// File: process/through_host.h (internal)
// Carries the tensors of a device that another backend does not know (`tpu`) through the host's
// memory: each call copies them there, waits for the other backend's call of the copies, and copies
// the result back. Slow, as nothing goes on beside it. Messages from one rank to another are copied
// too. Thread rule: as the backend's.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace hasten {

c10::intrusive_ptr<c10d::Backend> through_host(c10::intrusive_ptr<c10d::Backend> backend);

}  // namespace hasten
