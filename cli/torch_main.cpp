// File: cli/torch_main.cpp
// hasten-torch: the commands that need tensors. `hasten` starts it after it has checked the
// arguments.
#include <unistd.h>

#include <cstdio>
#include <new>
#include <string>

#include "program/exception_report.h"
#include "standard_output.h"
#include "test_result.h"
#include "torch_commands.h"

namespace {

// Prints an error on a line of its own: on a terminal, a progress bar may be on the current line.
void print_error(const std::string& command, const std::string& line) {
  std::fprintf(stderr, "%shasten %s: %s", isatty(STDERR_FILENO) != 0 ? "\n" : "", command.c_str(),
               line.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  int code = 2;
  try {
    if (command == "train") {
      code = hasten::cli::train(argc, argv);
    } else if (command == "estimate") {
      code = hasten::cli::estimate(argc, argv);
    } else if (command == "generate") {
      code = hasten::cli::generate(argc, argv);
    } else if (command == "plan") {
      code = hasten::cli::plan(argc, argv);
    } else if (command == "inspect") {
      code = hasten::cli::inspect(argc, argv);
    } else if (command == "convert") {
      code = hasten::cli::convert(argc, argv);
    } else if (command == "diff") {
      code = hasten::cli::diff(argc, argv);
    } else if (command == "merge-weights") {
      code = hasten::cli::merge_weights(argc, argv);
    } else if (command == hasten::cli::kTestRankCommand) {
      code = hasten::cli::test_rank(argc, argv);
    } else if (command == hasten::cli::kTestHangCommand) {
      code = hasten::cli::test_hang(argc, argv);
    } else {
      std::fprintf(
          stderr,
          "hasten-torch: error: command: got '%s', expected one that needs LibTorch. Hint: run "
          "hasten instead\n",
          command.c_str());
    }
  } catch (const std::bad_alloc&) {
    print_error(command,
                "error: out of memory before training began. Hint: use a smaller model or data "
                "set\n");
    code = 5;
  } catch (...) {
    const hasten::ExceptionReport report = hasten::describe_exception();
    print_error(command, report.line);
    code = report.exit_code;
  }
  code = hasten::cli::check_standard_output("hasten " + command, code);
  // Skips LibTorch's static destructors, which take time and free nothing that matters now.
  // hasten's own files are written and closed.
  std::fflush(nullptr);
  _exit(code);
}
