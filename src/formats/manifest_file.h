// File: formats/manifest_file.h (internal)
// A manifest: a file that lists other files of its folder with their sizes, checksums and tensors
// (docs/formats.md). A checkpoint has one of all its files (hasten/checkpoint/manifest.h), and a
// model's folder has one of its weights (formats/model_manifest.h).
//
//   write_file_records(folder, kCheckpointManifest, {{"a.bin", record_of_file(folder / "a.bin")}});
//   for (const auto& [name, record] : read_file_records(folder, kCheckpointManifest))
//     verify_file(folder / name, record, kCheckpointManifest);
//
// Thread rule: any thread. Throws DataError with the codes of the kind, and IoError "io.*".
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/file_checksum.h"
#include "formats/tensor_records.h"
#include "hasten/formats/detail/tensor_slice.h"

namespace hasten {

// The version of the layout that this release writes. It reads this one and earlier ones.
inline constexpr int kManifestVersion = 3;

struct ManifestKind {
  const char* file;         // the name of the manifest
  const char* description;  // of what it is the manifest, for messages
  const char* hint;         // what the user can do if a file differs
  // Codes of errors.
  const char* bad_manifest;
  const char* newer_version;
  const char* missing_file;
  const char* damaged;
};

inline constexpr ManifestKind kCheckpointManifest = {
    .file = kManifestFile,
    .description = "a complete checkpoint",
    .hint =
        "use another checkpoint; resume_from_checkpoint true takes the newest one that is "
        "whole",
    .bad_manifest = "checkpoint.manifest",
    .newer_version = "checkpoint.newer-version",
    .missing_file = "checkpoint.missing-file",
    .damaged = "checkpoint.damaged"};

// The entry of a file. A safetensors file has records of its tensors.
struct FileRecord {
  FileChecksum checksum;
  TensorRecords tensors;
};

using FileRecords = std::map<std::string, FileRecord>;

// Returns the record of a file. Checksums that were computed while the file was written are used
// (base/written_files.h); other files are read back.
FileRecord record_of_file(const std::filesystem::path& file,
                          const std::map<std::string, TensorSlice>& slices = {});

// Replaces the folder's manifest.
void write_file_records(const std::filesystem::path& folder, const ManifestKind& kind,
                        const FileRecords& records);

FileRecords read_file_records(const std::filesystem::path& folder, const ManifestKind& kind);

// Throws unless the file is the one that the record describes. The message names the first tensor
// that differs.
void verify_file(const std::filesystem::path& file, const FileRecord& record,
                 const ManifestKind& kind);

}  // namespace hasten
