#include "formats/model_manifest.h"

#include <optional>
#include <system_error>

#include "base/file_calls.h"
#include "base/regular_file.h"
#include "base/written_files.h"
#include "formats/deferred_writes.h"
#include "formats/model_files.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

constexpr ManifestKind kModelManifest = {
    .file = "model_manifest.json",
    .description = "the weights in this folder",
    .hint =
        "copy the folder again; if another program has changed the weights on purpose, delete "
        "model_manifest.json",
    .bad_manifest = "weights.manifest",
    .newer_version = "weights.manifest",
    .missing_file = "weights.missing-file",
    .damaged = "weights.damaged"};

// A manifest that is replaced more often than this during one verification is not waited for.
constexpr int kMaxReplacements = 10;

// Records the checksums of the files that are written below a folder.
class RecordedFolder {
 public:
  explicit RecordedFolder(const fs::path& folder) : folder_(folder) {
    record_written_files(folder);
  }
  RecordedFolder(const RecordedFolder&) = delete;
  RecordedFolder& operator=(const RecordedFolder&) = delete;
  ~RecordedFolder() { forget_written_files(folder_); }

 private:
  fs::path folder_;
};

const ManifestKind* kind_of_manifest(const fs::path& folder) {
  for (const ManifestKind* kind : {&kCheckpointManifest, &kModelManifest}) {
    if (path_exists(folder / kind->file)) return kind;
  }
  return nullptr;
}

void verify_by_manifest(const fs::path& folder, const std::vector<std::string>& names,
                        const ManifestKind& kind) {
  const FileRecords records = read_file_records(folder, kind);
  for (const std::string& name : names) {
    const auto record = records.find(name);
    if (record == records.end()) {
      throw DataError(kind.damaged, {.what = (folder / name).string(),
                                     .got = str("a file that ", kind.file, " does not list"),
                                     .expected = "only weights of one save",
                                     .hint = kind.hint});
    }
    verify_file(folder / name, record->second, kind);
  }
}

// Returns nothing if the manifest has been removed, or if it is not a regular file: to open a pipe
// would wait for a writer.
std::optional<std::string> text_of(const fs::path& manifest) {
  if (kind_unless_regular(manifest) != nullptr) return std::nullopt;
  try {
    return read_file(manifest);
  } catch (const IoError&) {
    return std::nullopt;
  }
}

}  // namespace

void with_model_manifest(const fs::path& folder, const std::function<void()>& write) {
  if (is_partial(folder) || DeferredWrites::active() != nullptr) return write();
  remove_model_manifest(folder);
  const RecordedFolder recorded(folder);
  write();
  write_model_manifest(folder, records_of_weights(folder));
}

FileRecords records_of_weights(const fs::path& folder) {
  FileRecords records;
  for (const std::string& name : names_of_weights(folder))
    records.emplace(name, record_of_file(folder / name));
  return records;
}

void remove_model_manifest(const fs::path& folder) {
  const fs::path manifest = folder / kModelManifest.file;
  if (!path_exists(manifest)) return;
  std::error_code error;
  fs::remove(manifest, error);
  if (error) throw_file_error("io.write", "cannot delete", manifest, error.value());
  sync_directory(folder);
}

void write_model_manifest(const fs::path& folder, const FileRecords& records) {
  write_file_records(folder, kModelManifest, records);
}

void verify_weights(const fs::path& folder, const std::vector<std::string>& names) {
  for (int replacements = 0;; ++replacements) {
    const ManifestKind* const kind = kind_of_manifest(folder);
    if (kind == nullptr) return;
    const auto before = text_of(folder / kind->file);
    try {
      return verify_by_manifest(folder, names, *kind);
    } catch (const Error&) {
      // Another process may have saved the folder's model meanwhile.
      if (replacements == kMaxReplacements || text_of(folder / kind->file) == before) throw;
    }
  }
}

}  // namespace hasten
