#include "hasten/checkpoint/merge_weights.h"

#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "base/unfinished_files.h"
#include "formats/manifest_file.h"
#include "formats/module_tensors.h"
#include "formats/safetensors_header.h"
#include "formats/weights_target.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/formats/safetensors.h"
#include "hasten/formats/weights.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

using RecordsByFile = std::map<std::string, TensorRecords>;

// True for model.safetensors, its shards, and the weights of further models.
bool is_weights_file(const std::string& name) {
  return starts_with(name, "model") && ends_with(name, ".safetensors");
}

// Returns the records of the weight files, and sets `has_slices` if one of them holds a part of a
// tensor.
RecordsByFile weight_records(const fs::path& folder, bool& has_slices) {
  RecordsByFile records;
  for (auto& [name, record] : read_file_records(folder, kCheckpointManifest))
    records[name] = std::move(record.tensors);
  std::erase_if(records, [](const auto& item) { return !is_weights_file(item.first); });
  for (const auto& [file, tensors] : records) {
    has_slices = has_slices || std::any_of(tensors.begin(), tensors.end(), [](const auto& item) {
                   return !item.second.offset.empty();
                 });
  }
  return records;
}

[[noreturn]] void throw_bad_slices(const fs::path& folder, const std::string& name,
                                   std::string got) {
  throw DataError("checkpoint.slices",
                  {.what = str(folder.string(), ", tensor ", safetensors::quoted(name)),
                   .got = std::move(got),
                   .expected = "slices that cover the tensor once",
                   .hint = "the files of all processes must be in the folder"});
}

// A slice of a tensor, loaded from one file.
struct LoadedSlice {
  const TensorRecord* record = nullptr;
  at::Tensor values;
};

bool overlap(const TensorRecord& a, const TensorRecord& b) {
  if (a.offset.empty() || b.offset.empty()) return true;
  for (std::size_t d = 0; d < a.shape.size(); ++d) {
    if (a.offset[d] >= b.offset[d] + b.sizes[d] || b.offset[d] >= a.offset[d] + a.sizes[d])
      return false;
  }
  return true;
}

// Merges the slices of a tensor. They must have one type and shape, and cover it once.
at::Tensor merge_slices(const fs::path& folder, const std::string& name,
                        const std::vector<LoadedSlice>& slices) {
  const TensorRecord& first = *slices.front().record;
  std::int64_t covered = 0;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const TensorRecord& record = *slices[i].record;
    if (record.shape != first.shape ||
        slices[i].values.scalar_type() != slices.front().values.scalar_type())
      throw_bad_slices(folder, name, "slices of tensors with different shapes or types");
    if (slices[i].values.sizes() != at::IntArrayRef(record.sizes_in_file()))
      throw_bad_slices(folder, name, "a slice whose size differs from the manifest's");
    for (std::size_t j = 0; j < i; ++j) {
      if (overlap(record, *slices[j].record)) throw_bad_slices(folder, name, "slices that overlap");
    }
    covered += c10::multiply_integers(record.sizes_in_file());
  }
  const std::int64_t elements = c10::multiply_integers(first.shape);
  if (covered != elements)
    throw_bad_slices(folder, name, str(covered, " of ", elements, " elements"));
  if (first.offset.empty()) return slices.front().values;
  at::Tensor whole = at::empty(first.shape, slices.front().values.options());
  for (const LoadedSlice& slice : slices) {
    at::Tensor place = whole;
    for (std::size_t d = 0; d < first.shape.size(); ++d) {
      place = place.narrow(static_cast<std::int64_t>(d), slice.record->offset[d],
                           slice.record->sizes[d]);
    }
    place.copy_(slice.values);
  }
  return whole;
}

TensorDict merge_all_slices(const fs::path& folder, const RecordsByFile& records) {
  std::map<std::string, std::vector<LoadedSlice>> slices;
  for (const auto& [file, tensors] : records) {
    const SafetensorsFile open(folder / file);
    for (const auto& [name, record] : tensors)
      slices[name].push_back({.record = &record, .values = open.tensor(name)});
  }
  TensorDict weights;
  for (const auto& [name, of_tensor] : slices)
    weights[name] = merge_slices(folder, name, of_tensor);
  return weights;
}

TensorDict weights_to_merge(const fs::path& folder) {
  restore_replaced_folder(folder);
  std::error_code ignored;
  if (!fs::exists(folder / kManifestFile, ignored)) return load_weights(folder);
  verify_checkpoint(folder);
  bool has_slices = false;
  const RecordsByFile records = weight_records(folder, has_slices);
  return has_slices ? merge_all_slices(folder, records) : load_weights(folder);
}

// Returns the metadata of the files, which lists the other names of tied weights.
SafetensorsMetadata metadata_of(const fs::path& folder) {
  SafetensorsMetadata metadata = {{"format", "pt"}};
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (!is_weights_file(entry.path().filename().string())) continue;
    const SafetensorsFile file(entry.path());
    for (const auto& [key, value] : file.metadata()) metadata.emplace(key, value);
  }
  return metadata;
}

}  // namespace

TensorDict merge_weights(const fs::path& folder, const fs::path& target,
                         const MergeOptions& options) {
  check_weights_target(target, options.max_shard_size);
  TensorDict weights = weights_to_merge(folder);
  write_weights(target, weights, options.max_shard_size, metadata_of(folder));
  return weights;
}

}  // namespace hasten
