// File: hasten/formats/safetensors.h
// Reads safetensors files without copying, and writes the same bytes as the reference
// implementation.
//
//   TensorDict weights = load_safetensors("model.safetensors");
//   save_safetensors("copy.safetensors", weights);
//
//   SafetensorsFile file("model.safetensors");            // reads the header, no tensor yet
//   for (const std::string& name : file.names())
//     std::cout << name << ' ' << file.info(name).bytes << '\n';
//   at::Tensor embeddings = file.tensor("bert.embeddings.word_embeddings.weight");
//
// A file is 8 bytes of header length (little endian), a JSON header, and the tensors one after the
// other. The whole header is checked before any tensor is available, so a wrong header cannot cause
// a read outside of the file. The rules are slightly stricter than in the reference implementation:
// repeated keys, keys unknown to the format, padding other than spaces, and a BOOL that is neither
// 0 nor 1 are refused. Dtypes: F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 BOOL C64 F8_E4M3
// F8_E5M2 F8_E4M3FNUZ F8_E5M2FNUZ F8_E8M0 F4.
// Throws DataError "safetensors.*" for wrong content, UsageError "safetensors.*" for tensors that
// cannot be written, IoError "io.*" from the system.
// Thread rule: many threads may read a SafetensorsFile.
// Source: the format description of huggingface/safetensors; compared with version 0.8.0.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/formats/detail/tensor_dict.h"

namespace hasten {

// The header's entry for one tensor.
struct SafetensorsInfo {
  at::ScalarType dtype;
  std::vector<std::int64_t> shape;
  std::int64_t bytes;  // Size in the file.
};

// An open file. Its tensors are views of the mapped file and keep it mapped; writing to a tensor
// changes memory only, never the file. The file must not be truncated while they are in use;
// replacing it by rename, as hasten and most tools do, is safe. Copies refer to the same open file.
class HASTEN_API SafetensorsFile {
 public:
  // Opens the file and checks its header.
  explicit SafetensorsFile(const std::filesystem::path& path);

  // All names, sorted.
  const std::vector<std::string>& names() const;
  bool contains(const std::string& name) const;
  SafetensorsInfo info(const std::string& name) const;
  // Returns a tensor on the CPU: a view, or a copy if the file places it at an address that its
  // dtype does not allow.
  at::Tensor tensor(const std::string& name) const;
  // The entries of "__metadata__".
  const std::map<std::string, std::string>& metadata() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

// All tensors of the file, as views of the mapped file.
HASTEN_API TensorDict load_safetensors(const std::filesystem::path& path);

using SafetensorsMetadata = std::map<std::string, std::string>;

// Writes the file atomically (hasten/base/files.h), one tensor at a time. A tensor that is not
// contiguous or not on the CPU is copied while it is written; no other memory is needed. With at
// most one metadata entry, the bytes are the same as with Python's safetensors.torch.save_file.
// With more entries, they are sorted, whereas Python's order is random. Like Python, refuses
// tensors that share memory ("safetensors.shared"): the file would hold them twice, and a reader
// could not tell that they are the same tensor. For tied weights, call drop_shared first.
HASTEN_API void save_safetensors(const std::filesystem::path& path, const TensorDict& tensors,
                                 const SafetensorsMetadata& metadata = {{"format", "pt"}});

// Removes each tensor that has the same memory, shape and strides as a tensor with an earlier name
// (tied weights). Returns a map from each removed name to the name that stays, the first in sorted
// order. Tensors that overlap partially stay.
HASTEN_API std::map<std::string, std::string> drop_shared(TensorDict& tensors);

}  // namespace hasten
