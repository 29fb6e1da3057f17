#include "hasten/checkpoint/manifest.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <vector>

#include "formats/manifest_file.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

static_assert(kCheckpointVersion == kManifestVersion);

// True if the file or a folder in its name, which is relative to the checkpoint, begins with a dot.
// Such files are not content of a checkpoint: unfinished files, the name of the job, and what other
// systems add to copied folders. Many copies leave them out.
bool is_hidden(const std::string& name) {
  const fs::path path = name;
  return std::any_of(path.begin(), path.end(),
                     [](const fs::path& part) { return part.native().starts_with('.'); });
}

// Returns the names of all files below the folder, relative to it, except the manifest and hidden
// files.
std::vector<std::string> file_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto it = fs::recursive_directory_iterator(folder, error); !error && it != fs::end(it);
       it.increment(error)) {
    std::error_code unknown;  // a symbolic link to itself has no type
    if (!it->is_regular_file(unknown)) continue;
    const std::string name = it->path().lexically_relative(folder).generic_string();
    if (name != kManifestFile && !is_hidden(name)) names.push_back(name);
  }
  if (error) {
    throw IoError("io.open",
                  {.what = "cannot list the folder " + folder.string(), .got = error.message()});
  }
  return names;
}

bool is_missing(const fs::path& file) {
  std::error_code unknown;
  return fs::status(file, unknown).type() == fs::file_type::not_found;
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
  for (const auto& [name, record] : records) {
    // Earlier releases have listed hidden files, which a copy may lack.
    if (is_hidden(name) && is_missing(folder / name)) continue;
    verify_file(folder / name, record, kCheckpointManifest);
  }
  for (const std::string& name : file_names(folder)) {
    if (records.contains(name) || !ends_with(name, ".safetensors")) continue;
    throw DataError("checkpoint.damaged", {.what = (folder / name).string(),
                                           .got = "a file that the manifest does not list",
                                           .expected = "only tensors of this checkpoint",
                                           .hint = "move the file to another folder"});
  }
}

}  // namespace hasten
