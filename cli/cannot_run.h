// File: cli/cannot_run.h
// The error of a program that the system does not run.
#pragma once

#include <cstring>
#include <string>

#include "hasten/base/error.h"

namespace hasten::cli {

// `error` is the errno of exec(3) or of the start of a process.
[[noreturn]] inline void throw_cannot_run(const std::string& program, int error) {
  throw IoError("io.cannot-run", {.what = "program " + program,
                                  .got = std::strerror(error),
                                  .expected = "a program that this machine can run",
                                  .hint = "check its path, and whether it is executable"});
}

}  // namespace hasten::cli
