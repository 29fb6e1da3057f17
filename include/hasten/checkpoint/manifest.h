// File: hasten/checkpoint/manifest.h
// The manifest of a checkpoint. It shows that a folder is damaged or incomplete before anything in
// the folder is used.
//
//   write_manifest(folder);     // out/checkpoint-10/hasten_manifest.json
//   verify_checkpoint(folder);  // reads every file, and throws if one of them has changed
//
// The manifest has the size and the XXH3-128 of each file below the folder, a version number, and a
// SHA-256 of itself (docs/formats.md). For each tensor of a safetensors file it has the position
// and the CRC-32C of its bytes, its shape, and the slice that the file holds. A message about a
// damaged file can therefore name the tensor, and several files can hold one tensor. A checkpoint
// is a folder with a manifest. The manifest is written last, and one rename makes the folder
// visible, so a folder without a manifest is incomplete. A file that the manifest does not list is
// ignored, except for a safetensors file, which a reader could take for a part of the checkpoint.
// Hidden files, whose name or folder begins with a dot, are not listed, and may be missing in a
// copy. A program that changes a file of a checkpoint on purpose calls write_manifest again.
//
// The checksums find every accidental change: flipped bits, truncation, files of another
// checkpoint. They do not protect against an attacker, who can write a new manifest.
//
// Throws DataError "checkpoint.manifest", "checkpoint.missing-file", "checkpoint.damaged" and
// "checkpoint.newer-version"; UsageError "checkpoint.slice"; IoError "io.*". Thread rule: any
// thread.
#pragma once

#include <filesystem>

#include "hasten/base/detail/export.h"
#include "hasten/formats/detail/tensor_slice.h"

namespace hasten {

// The version of the layout of checkpoints that this release writes. It reads this one and earlier
// ones.
inline constexpr int kCheckpointVersion = 3;

// Writes the manifest of all files below the folder that are not hidden, and replaces an older
// manifest.
HASTEN_API void write_manifest(const std::filesystem::path& folder,
                               const TensorSlices& slices = {});

// Throws unless the folder has a manifest and every file matches the manifest. The message names
// the first file that does not, and the tensor in it.
HASTEN_API void verify_checkpoint(const std::filesystem::path& folder);

}  // namespace hasten
