// File: cli/exec_torch.h
// Replaces this process with hasten-torch, the part of the command that links LibTorch.
#pragma once

#include <string>

namespace hasten::cli {

// Returns the path of hasten-torch: next to `hasten` in a build tree, ../libexec/hasten/ in an
// installation. Throws IoError "io.not-found".
std::string torch_program();

// Runs hasten-torch with this command's arguments. Returns only by throwing IoError.
[[noreturn]] void exec_torch_program(char** argv);

}  // namespace hasten::cli
