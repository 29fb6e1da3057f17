#include "hasten/formats/pytorch_file.h"

#include <algorithm>
#include <map>

#include "formats/pytorch_tensors.h"
#include "formats/safetensors_header.h"
#include "formats/weights_index.h"
#include "formats/weights_target.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/formats/safetensors.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

TensorDict load_pickle(const fs::path& path) {
  const auto archive = std::make_shared<const PickleArchive>(path);
  PyTorchTensors tensors(archive);
  TensorDict weights;
  for (const auto& [name, value] : archive->tensors()) {
    // The name of an attribute may have a dot, so two tensors may have the full name "a.b".
    if (!weights.emplace(name, tensors.tensor(*value)).second)
      archive->program().fail_damaged("two tensors of one full name");
  }
  return weights;
}

TensorDict load_pickles(const fs::path& index) {
  TensorDict weights;
  for (const auto& [file, listed] : read_weights_index(index)) {
    TensorDict found = load_pickle(index.parent_path() / file);
    const auto is_listed = [&listed = listed](const auto& item) {
      return listed.contains(item.first);
    };
    if (found.size() != listed.size() || !std::all_of(found.begin(), found.end(), is_listed)) {
      throw DataError("weights.index",
                      {.what = (index.parent_path() / file).string(),
                       .got = str(found.size(), " tensors"),
                       .expected = str("the ", listed.size(), " tensors of ", index.string()),
                       .hint = "fetch the folder again: the index and the files must come from the "
                               "same save"});
    }
    weights.merge(found);
  }
  return weights;
}

// Throws if the views of a storage together have more bytes than the storage. Such views overlap,
// and a small file would become a large one.
void check_views(const TensorDict& weights, const fs::path& file) {
  std::map<const c10::StorageImpl*, std::size_t> bytes_of_views;
  for (const auto& [name, tensor] : weights) {
    std::size_t& bytes = bytes_of_views[tensor.storage().unsafeGetStorageImpl()];
    bytes += tensor.nbytes();
    if (bytes <= tensor.storage().nbytes()) continue;
    throw DataError("pickle.shared",
                    {.what = str(file.string(), ", tensor ", safetensors::quoted(name)),
                     .got = "tensors that share memory in part",
                     .expected = "tensors of their own memory, or of the same memory",
                     .hint = "load the file in Python, clone() its tensors, and save it again"});
  }
}

}  // namespace

TensorDict load_pytorch_weights(const fs::path& file_or_folder, const PyTorchFileOptions& options) {
  require_pickle_allowed(options, file_or_folder);
  std::error_code ignored;
  if (!fs::is_directory(file_or_folder, ignored)) {
    return file_or_folder.extension() == ".json" ? load_pickles(file_or_folder)
                                                 : load_pickle(file_or_folder);
  }
  const fs::path index = file_or_folder / "pytorch_model.bin.index.json";
  return fs::exists(index, ignored) ? load_pickles(index)
                                    : load_pickle(file_or_folder / "pytorch_model.bin");
}

TensorDict convert_pytorch_weights(const fs::path& file_or_folder, const fs::path& target,
                                   const PyTorchFileOptions& options) {
  check_weights_target(target, options.max_shard_size);
  TensorDict weights = load_pytorch_weights(file_or_folder, options);
  SafetensorsMetadata metadata = {{"format", "pt"}};
  for (const auto& [alias, name] : drop_shared(weights)) metadata.emplace(alias, name);
  check_views(weights, file_or_folder);
  write_weights(target, weights, options.max_shard_size, metadata);
  return weights;
}

}  // namespace hasten
