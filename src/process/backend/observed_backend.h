// File: process/backend/observed_backend.h (internal)
// Wraps a c10d backend and records its collectives, whoever calls them: a Group, c10d's reducer or
// the program. With a `checker`, each is compared over the ranks before it runs. Messages from
// one rank to another are passed on without a record. Thread rule: that of the backend.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "process/backend/call_checker.h"
#include "process/watch/call_log.h"

namespace hasten {

c10::intrusive_ptr<c10d::Backend> make_observed_backend(
    c10::intrusive_ptr<c10d::Backend> backend, std::shared_ptr<CallLog> calls,
    std::unique_ptr<CallChecker> checker = nullptr);

}  // namespace hasten
