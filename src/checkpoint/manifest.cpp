#include "hasten/checkpoint/manifest.h"

#include <string>
#include <system_error>
#include <vector>

#include "formats/manifest_file.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

static_assert(kCheckpointVersion == kManifestVersion);

// The names of all files below the folder, relative to it, except the manifest and unfinished ones.
std::vector<std::string> file_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto it = fs::recursive_directory_iterator(folder, error); !error && it != fs::end(it);
       it.increment(error)) {
    std::error_code unknown;  // a symbolic link to itself has no type
    if (!it->is_regular_file(unknown) || is_partial(it->path())) continue;
    const std::string name = it->path().lexically_relative(folder).generic_string();
    if (name != kManifestFile) names.push_back(name);
  }
  if (error) {
    throw IoError("io.open",
                  {.what = "cannot list the folder " + folder.string(), .got = error.message()});
  }
  return names;
}

}  // namespace

void write_manifest(const fs::path& folder, const TensorSlices& slices) {
  FileRecords records;
  for (const std::string& name : file_names(folder)) {
    const auto own = slices.find(name);
    records[name] =
        record_of_file(folder / name, own == slices.end() ? decltype(own->second){} : own->second);
  }
  write_file_records(folder, kCheckpointManifest, records);
}

void verify_checkpoint(const fs::path& folder) {
  const FileRecords records = read_file_records(folder, kCheckpointManifest);
  for (const auto& [name, record] : records)
    verify_file(folder / name, record, kCheckpointManifest);
  for (const std::string& name : file_names(folder)) {
    // Hidden files are not tensors of hasten. Other systems add such files to copied folders.
    const bool is_hidden = fs::path(name).filename().native().starts_with('.');
    if (records.contains(name) || is_hidden || !ends_with(name, ".safetensors")) continue;
    throw DataError("checkpoint.damaged", {.what = (folder / name).string(),
                                           .got = "a file that the manifest does not list",
                                           .expected = "only tensors of this checkpoint",
                                           .hint = "move the file to another folder"});
  }
}

}  // namespace hasten
