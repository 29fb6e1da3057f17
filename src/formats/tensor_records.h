// File: formats/tensor_records.h (internal)
// The entries of a safetensors file's tensors in a manifest: the bytes of each tensor in the file,
// their checksum, its global shape, and the slice of it that the file holds (docs/formats.md).
//
//   const TensorRecords records = tensor_records(folder / "model.safetensors", {});
//   manifest["tensors"] = json_of(records);
//   damaged_part(folder / "model.safetensors", records);   // "tensor "fc.weight"", or ""
//
// Thread rule: any thread. Throws DataError "safetensors.*", UsageError "checkpoint.slice", IoError
// "io.*"; records_of_json throws nlohmann::json::exception.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hasten/formats/detail/tensor_slice.h"

namespace hasten {

struct TensorRecord {
  std::uint64_t begin = 0, end = 0;  // the bytes in the file
  std::string crc32c;                // the checksum of these bytes, eight digits
  std::vector<std::int64_t> shape;   // the shape of the whole tensor, as in a safetensors header
  // The slice in this file: its first index and its size in each dimension. Both are empty if the
  // file holds the whole tensor.
  std::vector<std::int64_t> offset, sizes;

  const std::vector<std::int64_t>& sizes_in_file() const { return offset.empty() ? shape : sizes; }
};

using TensorRecords = std::map<std::string, TensorRecord>;

// Describes the tensors of a file. `slices` names the tensors of which the file has only a part.
// `written` has the checksums of tensors that were computed before they were written to the file;
// those of the others are computed from the file.
TensorRecords tensor_records(const std::filesystem::path& file,
                             const std::map<std::string, TensorSlice>& slices,
                             const std::map<std::string, std::uint32_t>& written = {});

// True if the sizes, positions and checksum are valid.
bool is_valid(const TensorRecord& record);

nlohmann::json json_of(const TensorRecords& records);
TensorRecords records_of_json(const nlohmann::json& json);

// Returns the first part of a changed file that differs: "tensor "NAME"", or "the header".
std::string damaged_part(const std::filesystem::path& file, const TensorRecords& records);
// Returns the tensor that begins before byte `size` and ends after it, as "tensor "NAME""; empty if
// there is none.
std::string truncated_tensor(std::uint64_t size, const TensorRecords& records);

}  // namespace hasten
