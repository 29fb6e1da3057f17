// File: formats/model_manifest.h (internal)
// The manifest of the weights in a model's folder, model_manifest.json (docs/formats.md). It shows
// that a file of weights has changed on a disk or on its way to another machine.
//
//   with_model_manifest("out", [&] { save_safetensors("out/model.safetensors", weights); });
//   verify_weights("out", {"model.safetensors"});   // throws if the file has changed
//
// The manifest lists weights only, so config.json may be edited. While weights are written the
// folder has no manifest, and after a save that was interrupted it has none. Thread rule: any
// thread, on different folders. Throws DataError "weights.*" and "checkpoint.*", IoError "io.*".
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "formats/manifest_file.h"

namespace hasten {

// Calls `write`, which writes files of weights into the folder, and replaces the manifest. Only
// calls `write` for an unfinished folder (is_partial), and for files that are written later
// (formats/deferred_writes.h).
void with_model_manifest(const std::filesystem::path& folder, const std::function<void()>& write);

// The parts of with_model_manifest() for files that are moved to the folder from another one.
FileRecords records_of_weights(const std::filesystem::path& folder);
void remove_model_manifest(const std::filesystem::path& folder);
void write_model_manifest(const std::filesystem::path& folder, const FileRecords& records);

// Verifies these files by the folder's manifest, or by that of the checkpoint that the folder is.
// Does nothing if the folder has neither.
void verify_weights(const std::filesystem::path& folder, const std::vector<std::string>& names);

}  // namespace hasten
