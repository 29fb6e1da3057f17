// File: exported/payloads.h (internal)
// Reads the tensors of an exported archive. Each record has the bytes of one storage, and a JSON
// text lists the tensors that view the storages.
//
//   std::vector<Payload> payloads = read_payloads(archive, "data/weights/", "model");
//   TensorDict tensors = load_payloads(archive, payloads);
//
// Tensors of one record share their memory, as they did in Python. Pickled tensors are refused,
// because reading a pickle may run any code. Throws DataError "exported.payload" and what the
// archive throws. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/zip_archive.h"
#include "hasten/formats/detail/tensor_dict.h"

namespace hasten::exported {

struct Payload {
  std::string name;    // "encoder.weight"
  std::string record;  // "data/weights/weight_0"
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset = 0;  // in elements
  bool requires_grad = false;
};

// Reads the list of the tensors of a program. `folder` is "data/weights/" or "data/constants/".
std::vector<Payload> read_payloads(const ZipArchive& archive, const std::string& folder,
                                   const std::string& program);

// Returns copies of the tensors, which do not depend on the file. On the Meta device they have no
// values and take no memory, but the records are still checked.
TensorDict load_payloads(const ZipArchive& archive, const std::vector<Payload>& payloads,
                         at::Device device = at::kCPU);

// Returns the tensor of a payload as a view of `bytes`, which holds the whole record.
at::Tensor view_payload(const Payload& payload, const at::Tensor& bytes, const std::string& file);

}  // namespace hasten::exported
