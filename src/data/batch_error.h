// Adds the name of the batch to errors that occur while it is made.
#pragma once

#include <cstdint>
#include <span>

#include "hasten/data/context.h"

namespace hasten::detail {

// Call it in a catch block: rethrows the current exception with the batch and epoch in front of its
// text. DataError, IoError, UsageError and ConfigError keep their type and code. Other
// std::exceptions become DataError "data.batch" with the original nested in it. Other errors of
// hasten, out-of-memory errors, and exceptions that are not a std::exception are rethrown
// unchanged.
[[noreturn]] void rethrow_with_batch(const BatchContext& context,
                                     std::span<const std::int64_t> rows);

}  // namespace hasten::detail
