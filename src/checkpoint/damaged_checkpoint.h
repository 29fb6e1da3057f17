// File: checkpoint/damaged_checkpoint.h (internal)
#pragma once

#include <filesystem>
#include <string>

#include "hasten/base/error.h"

namespace hasten {

// Renames a checkpoint that cannot be used to `checkpoint-N.damaged`, and returns a sentence that
// says why and where it is now. A run that may not rename it goes on without it.
std::string set_damaged_aside(const std::filesystem::path& folder, const Error& error);

}  // namespace hasten
