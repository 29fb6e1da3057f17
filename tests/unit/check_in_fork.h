// Runs a function in its own process, for effects that a process cannot undo: a loaded library
// stays loaded, and LibTorch keeps its state.
//
//   CHECK(check_in_fork([] { return load() && works(); }));
#pragma once

#include <sys/wait.h>
#include <unistd.h>

namespace hasten {

// Returns the function's result in a fork of this process, or false if it throws or crashes.
template <class Function>
bool check_in_fork(const Function& function) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      _exit(function() ? 0 : 1);
    } catch (...) {
      _exit(2);
    }
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

}  // namespace hasten
