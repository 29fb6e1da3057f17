// File: base/atomic_files.h (internal)
// Swaps two folders, so that a crash at any moment leaves both of them.
//
//   swap_folders("run/.state.kept-1.partial-WRITER", "run/state");
//   sync_directory("run");
//
// Throws IoError "io.rename" and "io.mkdir". Thread rule: any thread.
#pragma once

#include <filesystem>

#include "base/internal_api.h"

namespace hasten {

// Swaps the folder `target` and the folder `hidden` next to it. Both must exist. If it throws, both
// have their old names. On a file system that cannot swap two folders, a process that is killed
// meanwhile leaves the old folder of `target` as `.NAME.replaced-WRITER`, and the folder `hidden`
// has its old name or `target`. If nothing has the name `target` then, restore_replaced_folders
// restores it (base/unfinished_files.h).
HASTEN_INTERNAL_API void swap_folders(const std::filesystem::path& hidden,
                                      const std::filesystem::path& target);

}  // namespace hasten
