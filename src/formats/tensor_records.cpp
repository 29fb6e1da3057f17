#include "formats/tensor_records.h"

#include <algorithm>
#include <cstdio>

#include "base/crc32.h"
#include "formats/mapped_file.h"
#include "formats/module_tensors.h"
#include "formats/safetensors_header.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::string checksum_text(std::uint32_t checksum) {
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", checksum);
  return digits;
}

// True if the sizes multiply to a number of elements that a file can have.
bool is_valid_shape(const std::vector<std::int64_t>& sizes) {
  std::int64_t elements = 1;
  for (const std::int64_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(elements, std::max<std::int64_t>(size, 1), &elements))
      return false;
  }
  return true;
}

// True if the slice lies in its tensor.
bool is_inside(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& offset,
               const std::vector<std::int64_t>& sizes) {
  if (shape.size() != sizes.size() || offset.size() != sizes.size()) return false;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (offset[i] < 0 || sizes[i] < 0 || offset[i] > shape[i] || sizes[i] > shape[i] - offset[i])
      return false;
  }
  return true;
}

void check_slice(const fs::path& file, const std::string& name, const TensorSlice& slice,
                 const std::vector<std::int64_t>& sizes) {
  if (is_valid_shape(slice.shape) && is_inside(slice.shape, slice.offset, sizes)) return;
  throw UsageError("checkpoint.slice",
                   {.what = str(file.string(), ", tensor ", safetensors::quoted(name)),
                    .got = str("a slice of size ", shape_text(sizes), " at ",
                               shape_text(slice.offset), " of ", shape_text(slice.shape)),
                    .expected = "a slice inside of its tensor"});
}

}  // namespace

TensorRecords tensor_records(const fs::path& file, const std::map<std::string, TensorSlice>& slices,
                             const std::map<std::string, std::uint32_t>& written) {
  const detail::MappedFile mapped(file);
  const auto header = safetensors::parse_header(mapped.bytes(), file.string());
  TensorRecords records;
  for (const safetensors::Entry& entry : header.entries) {
    TensorRecord record{.begin = header.data_begin + entry.begin,
                        .end = header.data_begin + entry.end,
                        .crc32c = {},
                        .shape = entry.shape,
                        .offset = {},
                        .sizes = {}};
    const auto known = written.find(entry.name);
    record.crc32c =
        checksum_text(known != written.end()
                          ? known->second
                          : crc32c(mapped.bytes().substr(record.begin, record.end - record.begin)));
    if (const auto slice = slices.find(entry.name); slice != slices.end()) {
      check_slice(file, entry.name, slice->second, entry.shape);
      if (slice->second.shape != entry.shape) {
        record.shape = slice->second.shape;
        record.offset = slice->second.offset;
        record.sizes = entry.shape;
      }
    }
    records.emplace(entry.name, std::move(record));
  }
  for (const auto& [name, slice] : slices) {
    if (records.contains(name)) continue;
    throw UsageError("checkpoint.slice", {.what = file.string(),
                                          .got = "a slice of tensor " + safetensors::quoted(name),
                                          .expected = "slices of tensors that the file has"});
  }
  return records;
}

bool is_valid(const TensorRecord& record) {
  const bool is_whole = record.offset.empty() && record.sizes.empty();
  return record.begin <= record.end && record.crc32c.size() == 8 && is_valid_shape(record.shape) &&
         (is_whole || is_inside(record.shape, record.offset, record.sizes));
}

Json json_of(const TensorRecords& records) {
  Json json = Json::object();
  for (const auto& [name, record] : records) {
    Json& entry = json[name];
    entry = {
        {"bytes", {record.begin, record.end}}, {"crc32c", record.crc32c}, {"shape", record.shape}};
    if (record.offset.empty()) continue;
    entry["offset"] = record.offset;
    entry["sizes"] = record.sizes;
  }
  return json;
}

TensorRecords records_of_json(const Json& json) {
  TensorRecords records;
  for (const auto& [name, entry] : json.items()) {
    TensorRecord& record = records[name];
    record.begin = entry.at("bytes").at(0).get<std::uint64_t>();
    record.end = entry.at("bytes").at(1).get<std::uint64_t>();
    record.crc32c = entry.at("crc32c").get<std::string>();
    record.shape = entry.at("shape").get<std::vector<std::int64_t>>();
    if (!entry.contains("offset")) continue;
    record.offset = entry.at("offset").get<std::vector<std::int64_t>>();
    record.sizes = entry.at("sizes").get<std::vector<std::int64_t>>();
  }
  return records;
}

std::string damaged_part(const fs::path& file, const TensorRecords& records) {
  if (records.empty()) return "";
  const detail::MappedFile mapped(file);
  std::string first;
  std::uint64_t begin = ~std::uint64_t{0};
  for (const auto& [name, record] : records) {
    if (record.begin >= begin || record.end > mapped.size() || record.begin > record.end) continue;
    const auto bytes = mapped.bytes().substr(record.begin, record.end - record.begin);
    if (checksum_text(crc32c(bytes)) == record.crc32c) continue;
    begin = record.begin;
    first = name;
  }
  return first.empty() ? "the header" : "tensor " + safetensors::quoted(first);
}

std::string truncated_tensor(std::uint64_t size, const TensorRecords& records) {
  for (const auto& [name, record] : records) {
    if (record.begin < size && size < record.end) return "tensor " + safetensors::quoted(name);
  }
  return "";
}

}  // namespace hasten
