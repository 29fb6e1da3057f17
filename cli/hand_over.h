// File: cli/hand_over.h
// Replaces this process by hasten-torch, the part of the command that links LibTorch.
#pragma once

#include <string>

namespace hasten::cli {

// Where hasten-torch is: beside `hasten` in a build tree and in ../libexec/hasten/ where installed.
// Throws IoError.
std::string torch_program();

// Runs it with the words of this command. Returns only by throwing IoError.
[[noreturn]] void hand_over(char** argv);

}  // namespace hasten::cli
