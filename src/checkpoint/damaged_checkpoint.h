// File: checkpoint/damaged_checkpoint.h (internal)
#pragma once

#include <filesystem>
#include <string>

#include "hasten/base/error.h"

namespace hasten {

// True if an error of verify_checkpoint() means that the files differ from those that were saved.
// Returns false for a checkpoint of a later version, and for a file that cannot be opened or
// mapped, for example because too many files are open: a later attempt may succeed.
bool is_damage_error(const Error& error);

// Renames a checkpoint that cannot be used to `checkpoint-N.damaged`, and returns a sentence that
// says why and where it is now. If it cannot be renamed, the run continues without it.
std::string rename_damaged_checkpoint(const std::filesystem::path& folder, const Error& error);

}  // namespace hasten
