// File: hasten/formats/detail/tensor_dict.h
// Tensors sorted by name: the content of weight files, and the default type of batches.
//
//   TensorDict batch = {{"input_ids", ids}, {"labels", labels}};
//   at::Tensor input_ids = tensor_at(batch, "input_ids");
//
// Copying a TensorDict copies references: the tensors share their memory, as everywhere in
// LibTorch.
// Thread rule: the same as for std::map.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "hasten/base/detail/export.h"

namespace hasten {

using TensorDict = std::map<std::string, at::Tensor>;

// Returns the tensor of that name. Throws DataError "data.missing-tensor", which lists the names
// that exist.
HASTEN_API const at::Tensor& tensor_at(const TensorDict& tensors, const std::string& name);

}  // namespace hasten
