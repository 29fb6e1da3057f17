#include <algorithm>
#include <utility>

#include "base/written_files.h"
#include "formats/deferred_writes.h"
#include "formats/memory_overlap.h"
#include "formats/plain_tensor.h"
#include "formats/safetensors_checks.h"
#include "formats/safetensors_header.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/formats/safetensors.h"

namespace hasten {
namespace {

using safetensors::Dtype;
using safetensors::Entry;
using safetensors::quoted;

const Dtype* checked_dtype(const std::string& name, const at::Tensor& tensor,
                           const std::string& file) {
  const std::string what = file + ": tensor " + quoted(name);
  if (!tensor.defined()) {
    throw UsageError(
        "safetensors.unsupported",
        {.what = what, .got = "an undefined tensor", .expected = "a tensor with values"});
  }
  if (name == "__metadata__") {
    throw UsageError("safetensors.unsupported",
                     {.what = what,
                      .got = "a name that the format reserves for its metadata",
                      .expected = "another name"});
  }
  if (tensor.layout() != at::kStrided || tensor.is_meta()) {
    throw UsageError("safetensors.unsupported",
                     {.what = what,
                      .got = tensor.is_meta() ? "a tensor without data (meta)" : "a sparse tensor",
                      .expected = "a dense tensor with data",
                      .hint = "to_dense() makes a dense one"});
  }
  const Dtype* dtype = safetensors::dtype_of(tensor.scalar_type());
  if (dtype == nullptr || (dtype->bits == 4 && tensor.dim() == 0)) {
    throw UsageError("safetensors.unsupported",
                     {.what = what,
                      .got = std::string("dtype ") + c10::toString(tensor.scalar_type()),
                      .hint = "the format has no such type: convert the tensor first"});
  }
  return dtype;
}

Entry entry_of(const std::string& name, const at::Tensor& tensor, const std::string& file) {
  Entry entry{.name = name, .dtype = checked_dtype(name, tensor, file)};
  entry.shape = tensor.sizes().vec();
  if (entry.dtype->bits == 4) entry.shape.back() *= 2;
  return entry;
}

// Checks the tensors. Sorts by the dtype's alignment, strictest first, then by name; the offsets
// follow that order.
std::vector<Entry> checked_layout(const TensorDict& tensors, const std::string& file) {
  std::vector<Entry> entries;
  for (const auto& [name, tensor] : tensors) entries.push_back(entry_of(name, tensor, file));
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.dtype < b.dtype; });
  std::uint64_t offset = 0;
  for (Entry& entry : entries) {
    entry.begin = offset;
    offset += tensors.at(entry.name).nbytes();
    entry.end = offset;
  }
  detail::check_no_shared_memory(tensors, file);
  return entries;
}

// A file that is ready to be written: its header, and its tensors in their order.
struct PreparedFile {
  std::filesystem::path path;
  std::string header;
  std::vector<std::pair<std::string, at::Tensor>> tensors;
};

// Returns a copy with its own memory.
at::Tensor copy_of(const at::Tensor& tensor) {
  const at::Tensor plain = plain_tensor(tensor);
  return plain.storage().is_alias_of(tensor.storage()) ? plain.clone(at::MemoryFormat::Contiguous)
                                                       : plain;
}

void write_file(const PreparedFile& file) {
  RecordedFile out(file.path);
  out.write(file.header);
  for (const auto& [name, tensor] : file.tensors) {
    // Converts one tensor at a time, so that a copy made for writing is freed before the next.
    const at::Tensor plain = plain_tensor(tensor);
    const auto* const bytes = static_cast<const char*>(plain.const_data_ptr());
    out.write_part(name, plain.numel() > 0 ? std::string_view(bytes, plain.nbytes()) : "");
  }
  out.commit();
}

}  // namespace

void detail::check_can_be_written(const TensorDict& tensors, const std::string& file) {
  static_cast<void>(checked_layout(tensors, file));
}

void save_safetensors(const std::filesystem::path& path, const TensorDict& tensors,
                      const SafetensorsMetadata& metadata) {
  const std::string file = path.string();
  const std::vector<Entry> entries = checked_layout(tensors, file);
  PreparedFile plain{
      .path = path, .header = safetensors::compose_header(entries, metadata, file), .tensors = {}};
  DeferredWrites* const deferred = DeferredWrites::active();
  for (const Entry& entry : entries) {
    const at::Tensor& tensor = tensors.at(entry.name);
    plain.tensors.emplace_back(entry.name, deferred != nullptr ? copy_of(tensor) : tensor);
  }
  if (deferred == nullptr) return write_file(plain);
  deferred->add([plain = std::move(plain)] { write_file(plain); });
}

}  // namespace hasten
