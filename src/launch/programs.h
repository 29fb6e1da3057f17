// File: launch/programs.h (internal)
// Finds the program to start, before anything is started.
#pragma once

#include <string>

#include "base/internal_api.h"

namespace hasten {

// Returns the executable file of this name in the first folder of PATH that has one, or an empty
// string if no folder has one.
HASTEN_INTERNAL_API std::string find_in_path(const std::string& name);

// Returns the file that execvp would run. Throws IoError "launch.program" if there is none.
HASTEN_INTERNAL_API std::string find_program(const std::string& name);

}  // namespace hasten
