// File: cli/hand_over.h
// Replaces this process by hasten-torch, the part of the command that links LibTorch.
#pragma once

namespace hasten::cli {

// Runs hasten-torch with the words of this command. It lies beside `hasten` in a build tree and in
// ../libexec/hasten/ where installed. Returns only by throwing IoError.
[[noreturn]] void hand_over(char** argv);

}  // namespace hasten::cli
