// File: process/backend/host_staging_backend.h (internal)
// Wraps a backend so that it carries the tensors of a device that it does not know (`tpu`). Each
// call copies the tensors to the host's memory, waits for the backend's call with the copies, and
// copies the result back. It is slow, because nothing else runs meanwhile. Messages from one rank
// to another are copied too. Thread rule: that of the backend.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace hasten {

c10::intrusive_ptr<c10d::Backend> make_host_staging_backend(
    c10::intrusive_ptr<c10d::Backend> backend);

}  // namespace hasten
