#include "exported/payloads.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <map>
#include <variant>

#include "exported/json_cursor.h"
#include "exported/schema_types.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::exported {
namespace {

constexpr std::size_t kMaxDimensions = 64;

[[noreturn]] void fail_payload(const std::string& file, const std::string& name,
                               const std::string& got, const std::string& expected) {
  throw DataError(
      "exported.payload",
      {.what = file + ": the tensor " + name, .got = got, .expected = expected, .hint = ""});
}

std::int64_t fixed_size(const Size& size, const JsonCursor& place) {
  const std::int64_t* const number = std::get_if<std::int64_t>(&size);
  if (number == nullptr || *number < 0)
    place.fail("a size that is not a number", "a number from 0");
  return *number;
}

Payload read_payload(const std::string& name, const JsonCursor& entry, const std::string& folder,
                     const ZipArchive& archive) {
  if (entry["use_pickle"].boolean())
    fail_payload(archive.file(), name, "a pickle", "the bytes of a dense tensor");
  const auto json = entry.find("tensor_meta");
  if (!json) entry.fail("no tensor_meta", "a tensor");
  const TensorMeta meta = read_tensor_meta(*json);
  Payload payload{
      name, folder + entry["path_name"].text(), meta.dtype, {}, {}, 0, meta.requires_grad};
  if (!archive.contains(payload.record))
    entry.fail("the record " + payload.record, "a record of the archive");
  for (const Size& size : meta.sizes) payload.sizes.push_back(fixed_size(size, *json));
  for (const Size& stride : meta.strides) payload.strides.push_back(fixed_size(stride, *json));
  payload.offset = fixed_size(meta.storage_offset, *json);
  if (payload.sizes.size() != payload.strides.size() || payload.sizes.size() > kMaxDimensions)
    json->fail(str(payload.sizes.size(), " sizes and ", payload.strides.size(), " strides"),
               "as many of each, at most 64");
  return payload;
}

// Returns the number of bytes that the record must have for the tensor.
std::uint64_t bytes_needed(const Payload& payload, const std::string& file) {
  const auto too_large = [&] { fail_payload(file, payload.name, "sizes beyond 64 bits", "less"); };
  std::uint64_t last = static_cast<std::uint64_t>(payload.offset), part = 0;
  for (std::size_t i = 0; i < payload.sizes.size(); ++i) {
    if (payload.sizes[i] == 0) return 0;
    if (__builtin_mul_overflow(static_cast<std::uint64_t>(payload.sizes[i] - 1),
                               static_cast<std::uint64_t>(payload.strides[i]), &part) ||
        __builtin_add_overflow(last, part, &last))
      too_large();
  }
  std::uint64_t elements = 0, bytes = 0;
  if (__builtin_add_overflow(last, std::uint64_t{1}, &elements) ||
      __builtin_mul_overflow(elements, static_cast<std::uint64_t>(c10::elementSize(payload.dtype)),
                             &bytes))
    too_large();
  return bytes;
}

}  // namespace

std::vector<Payload> read_payloads(const ZipArchive& archive, const std::string& folder,
                                   const std::string& program) {
  const std::string kind =
      folder == "data/weights/" ? "_weights_config.json" : "_constants_config.json";
  const std::string record = folder + program + kind;
  const JsonDocument document =
      JsonDocument::parse(archive.record(record), archive.file() + ": " + record);
  std::vector<Payload> payloads;
  for (const auto& [name, entry] : document.root()["config"].members())
    payloads.push_back(read_payload(name, entry, folder, archive));
  return payloads;
}

TensorDict load_payloads(const ZipArchive& archive, const std::vector<Payload>& payloads,
                         at::Device device) {
  std::map<std::string, at::Tensor> storages;
  TensorDict tensors;
  for (const Payload& payload : payloads) {
    at::Tensor& bytes = storages[payload.record];
    if (!bytes.defined()) {
      const std::string_view record = archive.record(payload.record);
      const auto size = static_cast<std::int64_t>(record.size());
      bytes = at::empty({size}, at::device(device).dtype(at::kByte));
      // A dry run copies nothing, so the weights take no memory.
      if (size > 0 && !bytes.is_meta())
        bytes.copy_(at::from_blob(const_cast<char*>(record.data()), {size}, at::kByte));
    }
    tensors[payload.name] = view_payload(payload, bytes, archive.file());
  }
  return tensors;
}

at::Tensor view_payload(const Payload& payload, const at::Tensor& bytes, const std::string& file) {
  const std::uint64_t needed = bytes_needed(payload, file);
  if (needed > bytes.nbytes())
    fail_payload(file, payload.name, str("a record of ", bytes.nbytes(), " bytes"),
                 str(needed, " bytes"));
  return at::empty({0}, bytes.options().dtype(payload.dtype))
      .set_(bytes.storage(), payload.offset, payload.sizes, payload.strides);
}

}  // namespace hasten::exported
