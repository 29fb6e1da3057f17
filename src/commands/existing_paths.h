// File: commands/existing_paths.h (internal)
// Checks that the paths of a command line exist, before a missing one leads to an error about its
// content.
//
//   check_model_exists(command.model);   // of --model
//   check_path_exists(command.run);      // an operand
//
// Throws IoError "io.not-found"; check_model_exists also "models.not-cached". Thread rule: any
// thread, if no other thread changes the environment.
#pragma once

#include <string>

#include "base/internal_api.h"

namespace hasten {

// Requires a file, a folder, a name in the Hugging Face cache, or a built-in name.
HASTEN_INTERNAL_API void check_model_exists(const std::string& model);

// Requires a file or a folder.
HASTEN_INTERNAL_API void check_path_exists(const std::string& path);

}  // namespace hasten
