// Parses and checks, or composes, the header of a safetensors file. Works on bytes alone, so that
// tests and the fuzzer need no files.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hasten::safetensors {

struct Dtype {
  std::string_view name;
  at::ScalarType type;
  // The bits of an element. F4 counts values in the format's shape; LibTorch counts pairs.
  int bits;
};

// All dtypes, in the order in which a file stores its tensors.
const std::vector<Dtype>& dtypes();
const Dtype* dtype_named(std::string_view name);
const Dtype* dtype_of(at::ScalarType type);

struct Entry {
  std::string name;
  const Dtype* dtype = nullptr;
  std::vector<std::int64_t> shape;  // The format's shape.
  std::uint64_t begin = 0;          // Bytes from the start of the data.
  std::uint64_t end = 0;
  std::vector<std::int64_t> sizes() const;  // LibTorch's shape.
};

struct Header {
  std::map<std::string, std::string> metadata;
  std::vector<Entry> entries;    // Sorted by offset.
  std::uint64_t data_begin = 0;  // Bytes from the start of the file.
};

// `bytes` is the whole file; `file` is its name in messages. Throws DataError "safetensors.*".
Header parse_header(std::string_view bytes, const std::string& file);

// Returns the 8 bytes of length and the header, padded with spaces to a multiple of 8. The entries
// must be in file order. Throws DataError "safetensors.header" for text that is not UTF-8.
std::string compose_header(const std::vector<Entry>& entries,
                           const std::map<std::string, std::string>& metadata,
                           const std::string& file);

// Returns a name for messages: quoted, with escaped control characters, cut to 100 bytes.
std::string quoted(const std::string& name);

}  // namespace hasten::safetensors
