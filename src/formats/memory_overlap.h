// File: formats/memory_overlap.h (internal)
// Tensors in one file must not share memory, because the file would contain it twice.
#pragma once

#include <string>

#include "hasten/formats/detail/tensor_dict.h"

namespace hasten::detail {

// Throws UsageError "safetensors.shared" if two tensors overlap. The error names both. `file` is
// used in the message.
void check_no_shared_memory(const TensorDict& tensors, const std::string& file);

}  // namespace hasten::detail
