// Runs a function in a child process, for what a program prints and the exit code that it ends
// with.
//
//   const EndedProcess ended = end_of_process([] { return run_main(program); });
//   CHECK(ended.exit_code == 2);
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "unit/options/support.h"

namespace hasten::test {

struct EndedProcess {
  int exit_code;
  std::string output;  // on standard output and standard error
};

// Calls the function in a child process, which ends with the exit code that the call returns.
template <class Function>
EndedProcess end_of_process(const Function& function) {
  const TemporaryFile file("output", "");
  std::fflush(nullptr);  // or the child would write it too
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const int to = open(file.path().c_str(), O_WRONLY);
    dup2(to, STDOUT_FILENO);
    dup2(to, STDERR_FILENO);
    const int exit_code = function();
    std::fflush(nullptr);
    _exit(exit_code);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  std::ifstream in(file.path());
  return {WEXITSTATUS(status), {std::istreambuf_iterator<char>(in), {}}};
}

}  // namespace hasten::test
