// File: hasten/checkpoint/manifest.h
// The manifest of a checkpoint, by which a damaged or incomplete folder is found before anything of
// it is used.
//
//   write_manifest(folder);     // out/checkpoint-10/hasten_manifest.json
//   verify_checkpoint(folder);  // reads every file, and throws if one of them has changed
//
// The manifest has the size and the SHA-256 of each file below the folder, a version number, and a
// SHA-256 of itself (docs/formats.md). A checkpoint is a folder with a manifest; the manifest is
// written last, and the folder appears by one rename, so a folder without one is incomplete. A file
// that the manifest does not list is ignored, except for a safetensors file, which a reader could
// take for a part of the checkpoint. Whoever changes a file of a checkpoint on purpose calls
// write_manifest again.
//
// The checksums find every accidental change: flipped bits, truncation, files of another
// checkpoint. They do not protect from an attacker, who can write a new manifest.
//
// Throws DataError "checkpoint.manifest", "checkpoint.missing-file", "checkpoint.damaged" and
// "checkpoint.newer-version"; IoError "io.*". Thread rule: any thread.
#pragma once

#include <filesystem>

#include "hasten/base/export.h"

namespace hasten {

inline constexpr const char* kManifestFile = "hasten_manifest.json";
// The version of the layout of checkpoints that this release writes. It reads this one and earlier
// ones.
inline constexpr int kCheckpointVersion = 1;

// Writes the manifest of all files below the folder, and replaces an older manifest.
HASTEN_API void write_manifest(const std::filesystem::path& folder);

// Throws unless the folder has a manifest and every file in it is as the manifest describes it. The
// message names the first file that is not.
HASTEN_API void verify_checkpoint(const std::filesystem::path& folder);

}  // namespace hasten
