// File: process/backend/backend_wrappers.h (internal)
// Backends of c10d that wrap another one. Thread rule: that of the wrapped backend.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "process/backend/call_checker.h"
#include "process/watch/call_log.h"

namespace hasten {

// Records the collectives of a backend that a Group, c10d's reducer or the program calls. With a
// `checker`, each call is compared between the ranks before it runs. Messages from one rank to
// another are forwarded without a record.
c10::intrusive_ptr<c10d::Backend> make_observed_backend(
    c10::intrusive_ptr<c10d::Backend> backend, std::shared_ptr<CallLog> calls,
    std::unique_ptr<CallChecker> checker = nullptr);

// Lets a backend process tensors of a device that it does not support (`tpu`). Each call copies the
// tensors to host memory, waits for the backend's call with the copies, and copies the result back.
// It is slow, because nothing else runs meanwhile. Messages from one rank to another are copied
// too.
c10::intrusive_ptr<c10d::Backend> make_host_staging_backend(
    c10::intrusive_ptr<c10d::Backend> backend);

}  // namespace hasten
