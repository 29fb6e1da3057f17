// File: formats/safetensors_checks.h (internal)
// The checks of save_safetensors, for a program that wants to know before a long run whether the
// tensors can be written after it.
//
//   detail::check_can_be_written(tensors, "out/model.safetensors");
//
// Thread rule: that of the tensors.
#pragma once

#include <string>

#include "hasten/formats/detail/tensor_dict.h"

namespace hasten::detail {

// Throws UsageError "safetensors.unsupported" or "safetensors.shared" if save_safetensors would
// refuse the tensors. It looks only at their types, layouts and memory. `file` is used in the
// message.
void check_can_be_written(const TensorDict& tensors, const std::string& file);

}  // namespace hasten::detail
