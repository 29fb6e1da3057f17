// File: hasten/formats/safetensors.h
// The safetensors format: reading without copying, writing byte for byte as the reference
// implementation does.
//
//   TensorDict weights = load_safetensors("model.safetensors");
//   save_safetensors("copy.safetensors", weights);
//
//   SafetensorsFile file("model.safetensors");            // header only; no tensor is touched yet
//   for (const std::string& name : file.names()) std::cout << name << file.info(name).bytes;
//   at::Tensor embeddings = file.tensor("bert.embeddings.word_embeddings.weight");
//
// A file is 8 bytes of header length (little endian), a JSON header, and the tensors one after the
// other. The whole header is checked before any tensor can be had: no lie in it can make a read
// fall outside the file (the rules are the reference's, and a little stricter: a key that appears
// twice, a key the format does not have, padding other than spaces, and a boolean that is neither 0
// nor 1 are refused).
// Dtypes: F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 BOOL C64 F8_E4M3 F8_E5M2 F8_E4M3FNUZ
// F8_E5M2FNUZ F8_E8M0 F4.
// Thread rule: a SafetensorsFile may be read by many threads.
// Throws DataError "safetensors.*" for what is wrong in the content, IoError "io.*" where the
// system refuses.
// Source: the format description of huggingface/safetensors; compared with version 0.8.0.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hasten/formats/tensor_dict.h"

namespace hasten {

struct SafetensorsInfo {
  at::ScalarType dtype;
  std::vector<std::int64_t> shape;
  std::int64_t bytes;  // in the file
};

// An open file. The tensors it gives lie in the mapped file and keep it mapped; writing to one
// changes memory only, never the file. The file must not be shortened in place while they are in
// use (replacing it by rename, as hasten and most tools do, is safe). A copy of a SafetensorsFile
// is the same open file.
class SafetensorsFile {
 public:
  // Opens and checks.
  explicit SafetensorsFile(const std::filesystem::path& path);

  // Sorted.
  const std::vector<std::string>& names() const;
  bool contains(const std::string& name) const;
  SafetensorsInfo info(const std::string& name) const;
  // On the CPU. Without a copy, unless the file places the tensor at an address its dtype cannot
  // have.
  at::Tensor tensor(const std::string& name) const;
  // The strings under "__metadata__".
  const std::map<std::string, std::string>& metadata() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

// Every tensor of the file, over the mapped file as above.
TensorDict load_safetensors(const std::filesystem::path& path);

using SafetensorsMetadata = std::map<std::string, std::string>;

// Writes the file atomically (hasten/base/files.h), one tensor after the other: the memory needed
// is that of the largest tensor that is not contiguous or not on the CPU. With at most one metadata
// entry the bytes equal those of Python's safetensors.torch.save_file; with more, the order of the
// entries is ours (theirs is random). Tensors that share memory are refused ("safetensors.shared"),
// as there: the file would hold them twice and the reader would not know that they are one. Drop
// one of the names first (drop_shared).
void save_safetensors(const std::filesystem::path& path, const TensorDict& tensors,
                      const SafetensorsMetadata& metadata = {{"format", "pt"}});

// Removes names whose tensor is the very same memory as that of an earlier name (tied weights): of
// each such group the first name in sorted order stays. Gives what was dropped and what stands for
// it. Tensors that overlap in part stay.
std::map<std::string, std::string> drop_shared(TensorDict& tensors);

}  // namespace hasten
