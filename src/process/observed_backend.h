// File: process/observed_backend.h (internal)
// A c10d backend whose collectives are noted, and compared over the ranks where there is an
// agreement, whoever calls them: a Group, c10d's reducer, a program. Messages from one rank to
// another are passed on unseen. Thread rule: as the backend's.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "process/agreement.h"
#include "process/call_log.h"

namespace hasten {

c10::intrusive_ptr<c10d::Backend> observed(c10::intrusive_ptr<c10d::Backend> backend,
                                           std::shared_ptr<CallLog> calls,
                                           std::unique_ptr<Agreement> agreement = nullptr);

}  // namespace hasten
