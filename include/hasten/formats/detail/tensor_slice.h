// File: hasten/formats/detail/tensor_slice.h
// The parts of tensors that the files of a checkpoint hold. See hasten/checkpoint/manifest.h.
//
//   TensorSlices slices;
//   slices["model.safetensors"]["fc.weight"] = {.shape = {8, 4}, .offset = {4, 0}};
//
// Thread rule: the same as for std::map.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace hasten {

// A folder with this file is a checkpoint.
inline constexpr const char* kManifestFile = "hasten_manifest.json";

// Describes the part of a tensor that a file holds: the shape of the whole tensor, and the index at
// which the part begins. The size of the part is that of the tensor in the file.
struct TensorSlice {
  std::vector<std::int64_t> shape = {};
  std::vector<std::int64_t> offset = {};
};

// The slices of a folder, by file and by tensor. A tensor that is not listed is whole.
using TensorSlices = std::map<std::string, std::map<std::string, TensorSlice>>;

}  // namespace hasten
