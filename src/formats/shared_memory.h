// Tensors of one file must not share memory: the file would hold them twice.
#pragma once

#include <string>

#include "hasten/formats/tensor_dict.h"

namespace hasten::detail {

// UsageError "safetensors.shared" that names two tensors which overlap. `file` is for the message.
void refuse_shared(const TensorDict& tensors, const std::string& file);

}  // namespace hasten::detail
