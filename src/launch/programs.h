// File: launch/programs.h (internal)
// The program to be started, found before anything is.
#pragma once

#include <string>

namespace hasten {

// As execvp looks for it. Throws IoError "launch.program".
std::string found_program(const std::string& name);

}  // namespace hasten
