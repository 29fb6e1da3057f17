// File: hasten/program/run_main.h
// Calls a program of yours and turns the exception that ends it into a line of text and an exit
// code, as the commands of hasten do. Without it, C++ aborts the process: the exit code is 134, and
// the code of the error does not appear.
//
//   // int main(int argc, char** argv) {
//   return hasten::run_main([&] {
//     std::string data;
//     hasten::ArgumentParser parser("Counts the bytes of a file.");
//     parser.add("data", data, "Read this file.").require("data");
//     if (const auto exit_code = parser.parse_or_report(argc, argv)) return *exit_code;
//     std::cout << hasten::read_file(data).size() << " bytes\n";  // may throw IoError
//     return 0;
//   });
//
// | the program                              | standard error               | exit code          |
// |------------------------------------------|------------------------------|--------------------|
// | returns a number                         | nothing                      | the number         |
// | throws hasten::Error                     | error[CODE]: its what()      | its exit_code()    |
// | throws std::filesystem::filesystem_error | the IoError for it           | 4                  |
// | throws another std::exception            | error: its what()            | 1                  |
// | throws anything else                     | error: a sentence about that | 1                  |
//
// The text of a LibTorch error is printed without its list of functions. docs/errors.md explains
// the codes. Each rank of a job prints its own error. The objects of the program are destroyed
// before the error is printed, so make them inside the call. To see the list of functions, or where
// an exception comes from, use the command `catch throw` of a debugger.
//
// Needs no torch. Throws nothing. Thread rule: call it once, in the main thread; it does not catch
// the exceptions of other threads.
#pragma once

#include <functional>

#include "hasten/base/detail/export.h"

namespace hasten {

// Calls program(), which returns the exit code, and returns the exit code for main().
[[nodiscard]] HASTEN_API int run_main(const std::function<int()>& program) noexcept;

}  // namespace hasten
