// File: formats/safetensors_header.h (internal)
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

// The memory that reading the header of a file may take beyond the size of the file, apart from the
// text that is read at the moment. A file of usual tensors needs far less, as their data are larger
// than what is kept of them.
inline constexpr std::uint64_t kMemoryBeyondFile = std::uint64_t{64} << 20;

// Return at least the memory that a tensor, or a text of the metadata, takes while it is read.
inline std::uint64_t memory_of(const Entry& entry) {
  // A vector that grows has its old elements and room for twice as many new ones. The name is also
  // in the list of names.
  return 3 * sizeof(Entry) + 96 + 16 * entry.shape.size() + 2 * entry.name.size();
}
inline std::uint64_t memory_of(const std::string& key, const std::string& text) {
  return 192 + key.size() + text.size();
}
// Throws DataError "safetensors.header" if `memory` is beyond the limit of a file of this size.
void check_memory(std::uint64_t memory, std::uint64_t file_size, const std::string& file);

// `bytes` is the whole file; `file` is its name in messages. Throws DataError "safetensors.*".
Header parse_header(std::string_view bytes, const std::string& file);

// Returns the 8 bytes of length and the header, padded with spaces to a multiple of 8. The entries
// must be in file order. Throws DataError "safetensors.header" for text that is not UTF-8, and for
// a header that parse_header() would refuse because of its memory.
std::string compose_header(const std::vector<Entry>& entries,
                           const std::map<std::string, std::string>& metadata,
                           const std::string& file);

// Returns a name for messages: quoted, with escaped control characters, cut to 100 bytes.
std::string quoted(const std::string& name);

}  // namespace hasten::safetensors
