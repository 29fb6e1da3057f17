#include "formats/safetensors_header.h"

#include <nlohmann/json.hpp>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::safetensors {

const std::vector<Dtype>& dtypes() {
  static const std::vector<Dtype> all = {
      {"U64", at::kUInt64, 64},
      {"I64", at::kLong, 64},
      {"F64", at::kDouble, 64},
      {"C64", at::kComplexFloat, 64},
      {"F32", at::kFloat, 32},
      {"U32", at::kUInt32, 32},
      {"I32", at::kInt, 32},
      {"BF16", at::kBFloat16, 16},
      {"F16", at::kHalf, 16},
      {"U16", at::kUInt16, 16},
      {"I16", at::kShort, 16},
      {"F8_E5M2FNUZ", at::kFloat8_e5m2fnuz, 8},
      {"F8_E4M3FNUZ", at::kFloat8_e4m3fnuz, 8},
      {"F8_E8M0", at::kFloat8_e8m0fnu, 8},
      {"F8_E4M3", at::kFloat8_e4m3fn, 8},
      {"F8_E5M2", at::kFloat8_e5m2, 8},
      {"I8", at::kChar, 8},
      {"U8", at::kByte, 8},
      {"F4", at::kFloat4_e2m1fn_x2, 4},
      {"BOOL", at::kBool, 8},
  };
  return all;
}

const Dtype* dtype_named(std::string_view name) {
  for (const Dtype& dtype : dtypes()) {
    if (dtype.name == name) return &dtype;
  }
  return nullptr;
}

const Dtype* dtype_of(at::ScalarType type) {
  for (const Dtype& dtype : dtypes()) {
    if (dtype.type == type) return &dtype;
  }
  return nullptr;
}

std::vector<std::int64_t> Entry::sizes() const {
  std::vector<std::int64_t> sizes = shape;
  if (dtype->bits == 4 && !sizes.empty()) sizes.back() /= 2;
  return sizes;
}

std::string quoted(const std::string& name) {
  using nlohmann::json;
  std::string shown =
      json(name.substr(0, 100)).dump(-1, ' ', false, json::error_handler_t::replace);
  if (name.size() > 100) shown.insert(shown.size() - 1, "...");
  return shown;
}

namespace {

// Returns a JSON string. Throws if a name or metadata is not UTF-8, because other readers could not
// read it.
std::string json_string(const std::string& text, const std::string& file) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw DataError("safetensors.header",
                    {.what = file + ": the name or metadata " + quoted(text) + " is not UTF-8",
                     .hint = "tensor names and metadata must be valid UTF-8"});
  }
}

std::string json_numbers(const std::vector<std::int64_t>& numbers) {
  std::string out = "[";
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(numbers[i]);
  }
  return out + "]";
}

std::string json_of(const Entry& entry, const std::string& file) {
  const std::vector<std::int64_t> offsets = {static_cast<std::int64_t>(entry.begin),
                                             static_cast<std::int64_t>(entry.end)};
  return str(json_string(entry.name, file), ":{\"dtype\":\"", entry.dtype->name,
             "\",\"shape\":", json_numbers(entry.shape),
             ",\"data_offsets\":", json_numbers(offsets), '}');
}

}  // namespace

void check_memory(std::uint64_t memory, std::uint64_t file_size, const std::string& file) {
  if (memory <= file_size + kMemoryBeyondFile) return;
  throw DataError(
      "safetensors.header",
      {.what = file + ": the header",
       .got = str("tensors and metadata that take ", memory >> 20, " MiB of memory"),
       .expected = str("at most 64 MiB more than the ", file_size, " bytes of the file"),
       .hint = "store the values in fewer and larger tensors"});
}

std::string compose_header(const std::vector<Entry>& entries,
                           const std::map<std::string, std::string>& metadata,
                           const std::string& file) {
  std::vector<std::string> parts;
  std::uint64_t memory = 0;
  if (!metadata.empty()) {
    std::vector<std::string> pairs;
    for (const auto& [key, value] : metadata) {
      memory += memory_of(key, value);
      pairs.push_back(json_string(key, file) + ":" + json_string(value, file));
    }
    parts.push_back("\"__metadata__\":{" + join(pairs, ",") + "}");
  }
  for (const Entry& entry : entries) {
    memory += memory_of(entry);
    parts.push_back(json_of(entry, file));
  }
  std::string header = "{" + join(parts, ",") + "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  const std::uint64_t data = entries.empty() ? 0 : entries.back().end;
  check_memory(memory, 8 + header.size() + data, file);
  std::string length;
  for (int byte = 0; byte < 8; ++byte) {
    length += static_cast<char>(header.size() >> (8 * byte) & 0xFF);
  }
  return length + header;
}

}  // namespace hasten::safetensors
