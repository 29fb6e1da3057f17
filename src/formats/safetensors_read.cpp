#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/did_you_mean.h"
#include "formats/mapped_file.h"
#include "formats/safetensors_header.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/formats/safetensors.h"

namespace hasten {

static_assert(std::endian::native == std::endian::little, "safetensors files are little endian");

struct SafetensorsFile::State {
  std::string path;
  std::shared_ptr<detail::MappedFile> file;
  safetensors::Header header;
  std::vector<std::string> names;                  // sorted
  std::vector<const safetensors::Entry*> entries;  // in the order of the names

  const safetensors::Entry* find(const std::string& name) const {
    const auto found = std::lower_bound(names.begin(), names.end(), name);
    return found != names.end() && *found == name ? entries[found - names.begin()] : nullptr;
  }
  const safetensors::Entry& entry(const std::string& name) const {
    if (const safetensors::Entry* found = find(name)) return *found;
    throw DataError("safetensors.missing-tensor",
                    {.what = path + ": there is no tensor " + safetensors::quoted(name),
                     .got = str(names.size(), " others"),
                     .hint = did_you_mean(nearest(name, names), "", safetensors::quoted)});
  }
};

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) {
  auto state = std::make_shared<State>();
  state->path = path.string();
  state->file = std::make_shared<detail::MappedFile>(path);
  state->header = safetensors::parse_header(state->file->bytes(), state->path);
  auto& entries = state->entries;
  entries.reserve(state->header.entries.size());
  for (const safetensors::Entry& entry : state->header.entries) entries.push_back(&entry);
  std::sort(entries.begin(), entries.end(),
            [](const auto* a, const auto* b) { return a->name < b->name; });
  state->names.reserve(entries.size());
  for (const safetensors::Entry* entry : entries) state->names.push_back(entry->name);
  state_ = std::move(state);
}

const std::vector<std::string>& SafetensorsFile::names() const { return state_->names; }
bool SafetensorsFile::contains(const std::string& name) const {
  return state_->find(name) != nullptr;
}
const SafetensorsMetadata& SafetensorsFile::metadata() const { return state_->header.metadata; }

SafetensorsInfo SafetensorsFile::info(const std::string& name) const {
  const safetensors::Entry& entry = state_->entry(name);
  return {.dtype = entry.dtype->type,
          .shape = entry.sizes(),
          .bytes = static_cast<std::int64_t>(entry.end - entry.begin)};
}

at::Tensor SafetensorsFile::tensor(const std::string& name) const {
  const safetensors::Entry& entry = state_->entry(name);
  const std::vector<std::int64_t> sizes = entry.sizes();
  const auto options = at::TensorOptions().dtype(entry.dtype->type);
  const std::size_t bytes = entry.end - entry.begin;
  if (bytes == 0) return at::empty(sizes, options);
  char* data = state_->file->data() + state_->header.data_begin + entry.begin;
  if (entry.dtype->type == at::kBool &&
      !std::all_of(data, data + bytes, [](unsigned char byte) { return byte <= 1; })) {
    // Reading such a bool is undefined behaviour in C++.
    throw DataError("safetensors.bool",
                    {.what = state_->path + ": tensor " + safetensors::quoted(name),
                     .got = "a BOOL that is neither 0 nor 1",
                     .hint = "the file is damaged or its writer is faulty"});
  }
  const std::size_t alignment = at::elementSize(entry.dtype->type);
  if (reinterpret_cast<std::uintptr_t>(data) % alignment != 0) {
    at::Tensor copy = at::empty(sizes, options);
    std::memcpy(copy.mutable_data_ptr(), data, bytes);
    return copy;
  }
  return at::from_blob(
      data, sizes, [file = state_->file](void*) {}, options);
}

TensorDict load_safetensors(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  TensorDict tensors;
  for (const std::string& name : file.names()) {
    tensors.emplace_hint(tensors.end(), name, file.tensor(name));
  }
  return tensors;
}

}  // namespace hasten
