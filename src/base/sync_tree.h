// File: base/sync_tree.h (internal)
// Makes what has been written in a folder survive a power failure.
//
//   sync_tree("run/.model.partial-1");
//
// Throws IoError "io.open", "io.sync" and "io.read". Thread rule: safe on any thread.
#pragma once

#include <filesystem>

#include "base/internal_api.h"

namespace hasten {

// Syncs the files below the folder first, then the folders from the innermost out, so that the
// entries of a folder are on the disk before its name. Skips symbolic links.
HASTEN_INTERNAL_API void sync_tree(const std::filesystem::path& root);

}  // namespace hasten
