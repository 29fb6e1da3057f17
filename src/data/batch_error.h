// File: data/batch_error.h (internal)
// Names the rows of a batch in messages, and adds the name of the batch to errors that occur while
// it is made.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hasten/data/context.h"
#include "hasten/data/detail/batch_info.h"

namespace hasten::detail {

// Returns the numbers of the first rows of a batch, as BatchInfo has them.
std::vector<std::int64_t> named_rows(std::span<const std::int64_t> rows);

// Returns "row 7" or "rows 1, 2, ...", for a batch of `count` rows of which these are the first.
std::string list_of_rows(const std::vector<std::int64_t>& first, std::int64_t count);

// Call it in a catch block: rethrows the current exception with the batch and epoch in front of its
// text. DataError, IoError, UsageError and ConfigError keep their type and code. Other
// std::exceptions become DataError "data.batch" with the original nested in it. Other errors of
// hasten, out-of-memory errors, and exceptions that are not a std::exception are rethrown
// unchanged.
[[noreturn]] void rethrow_with_batch(const BatchContext& context,
                                     std::span<const std::int64_t> rows);

}  // namespace hasten::detail
