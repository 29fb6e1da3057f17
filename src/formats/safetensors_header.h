// The header of a safetensors file: parsed and checked, or composed. Works on bytes alone, so that
// tests and the fuzzer can feed it without files.
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
  int bits;  // of an element of the format's shape: F4 counts values where LibTorch counts pairs
};

// All of them, in the order in which files are sorted: the first comes first in the file.
const std::vector<Dtype>& dtypes();
const Dtype* dtype_named(std::string_view name);
const Dtype* dtype_of(at::ScalarType type);

struct Entry {
  std::string name;
  const Dtype* dtype = nullptr;
  std::vector<std::int64_t> shape;  // of the format
  std::uint64_t begin = 0;          // bytes from the start of the data
  std::uint64_t end = 0;
  std::vector<std::int64_t> sizes() const;  // of LibTorch
};

struct Header {
  std::map<std::string, std::string> metadata;
  std::vector<Entry> entries;    // by offset
  std::uint64_t data_begin = 0;  // bytes from the start of the file
};

// `bytes` is the whole file; `file` is its name in messages. DataError "safetensors.*" on anything
// wrong.
Header parse_header(std::string_view bytes, const std::string& file);

// The 8 bytes of length and the header, padded with spaces to a multiple of 8. The entries in the
// order of the file.
std::string compose_header(const std::vector<Entry>& entries,
                           const std::map<std::string, std::string>& metadata,
                           const std::string& file);

// A name as it appears in messages: quoted, control characters escaped, at most 100 bytes of it.
std::string quoted(const std::string& name);

}  // namespace hasten::safetensors
