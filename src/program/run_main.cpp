#include "hasten/program/run_main.h"

#include <cstdio>

#include "program/exception_report.h"

namespace hasten {

int run_main(const std::function<int()>& program) noexcept {
  try {
    return program();
  } catch (...) {
    const ExceptionReport report = describe_exception();
    std::fputs(report.line.c_str(), stderr);
    return report.exit_code;
  }
}

}  // namespace hasten
