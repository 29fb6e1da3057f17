// File: program/exception_report.h (internal)
// The text and the exit code for an exception that ends a program: a command of hasten, or a
// program of a user.
//
//   } catch (...) {
//     const ExceptionReport report = describe_exception();
//     std::fputs(("hasten train: " + report.line).c_str(), stderr);
//     return report.exit_code;
//   }
//
// Thread rule: any thread. Only lack of memory makes it throw.
#pragma once

#include <string>

#include "base/internal_api.h"

namespace hasten {

struct ExceptionReport {
  std::string line;  // "error[CODE]: TEXT\n", or "error: TEXT\n" for an exception without a code
  int exit_code = 1;
};

// Describes the exception that the calling handler has caught. An error of std::filesystem becomes
// an IoError. The text of LibTorch's errors has no list of functions.
HASTEN_INTERNAL_API ExceptionReport describe_exception();

}  // namespace hasten
