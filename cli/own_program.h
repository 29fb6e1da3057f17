// File: cli/own_program.h
// The path of the program that this process runs, for processes that run it again.
//
//   const Child child({own_program(), "launch", "--help"}, {});
//
// Throws std::filesystem::filesystem_error without /proc. Thread rule: any thread.
#pragma once

#include <filesystem>
#include <string>

namespace hasten::cli {

inline std::string own_program() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

}  // namespace hasten::cli
