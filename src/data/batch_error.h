// Errors that happened while a batch was made, with the batch named.
#pragma once

#include <cstdint>
#include <span>

#include "hasten/data/context.h"

namespace hasten::detail {

// To be called in a catch block: throws the error being handled again, its text preceded by the
// batch and epoch. Errors of hasten keep their kind and code; other std::exceptions become
// DataError "data.batch" with the original nested in it; running out of memory and what is no
// std::exception pass as they are.
[[noreturn]] void rethrow_with_batch(const BatchContext& context,
                                     std::span<const std::int64_t> rows);

}  // namespace hasten::detail
