// File: hasten/formats/tensor_dict.h
// Tensors by name, sorted by name: what weight files hold, and what batches are by default.
//
//   TensorDict batch = {{"input_ids", ids}, {"labels", labels}};
//   at::Tensor ids = take(batch, "input_ids");   // an error that says what is there
//
// Copying a TensorDict copies references; the tensors themselves are shared, as everywhere in
// LibTorch.
// Thread rule: a value, as std::map. Throws DataError "data.missing-tensor" (take).
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace hasten {

using TensorDict = std::map<std::string, at::Tensor>;

// The tensor of that name.
const at::Tensor& take(const TensorDict& tensors, const std::string& name);

}  // namespace hasten
