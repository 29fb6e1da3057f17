// File: launch/digest.h (internal)
// Identifies a program by its content, so that machines can compare what they run.
#pragma once

#include <string>
#include <vector>

namespace hasten {

// Returns the SHA-256 of the program's file in hexadecimal digits. Throws IoError "launch.program",
// "io.open" and "io.read".
std::string digest_of_program(const std::vector<std::string>& program);

}  // namespace hasten
