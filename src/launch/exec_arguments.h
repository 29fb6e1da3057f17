// File: launch/exec_arguments.h (internal)
// The arguments and the environment of execve(2). Thread rule: any thread, while no thread changes
// the environment of this process.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "hasten/base/text.h"

namespace hasten {

// Returns the arguments in the form that execve needs, with a null at the end. The pointers point
// into `arguments`.
inline std::vector<char*> exec_arguments(const std::vector<std::string>& arguments) {
  std::vector<char*> out;
  for (const std::string& argument : arguments) out.push_back(const_cast<char*>(argument.c_str()));
  out.push_back(nullptr);
  return out;
}

// Returns `own` (NAME=value) and the variables of this process that `own` does not replace, except
// variables with names that begin with `dropped_prefix`.
inline std::vector<std::string> exec_environment(const std::vector<std::string>& own,
                                                 std::string_view dropped_prefix = {}) {
  std::vector<std::string> all = own;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string line = *variable;
    const std::string name = line.substr(0, line.find('=') + 1);
    const bool is_replaced = std::any_of(
        own.begin(), own.end(), [&](const std::string& each) { return starts_with(each, name); });
    const bool is_dropped = !dropped_prefix.empty() && starts_with(line, dropped_prefix);
    if (!is_replaced && !is_dropped) all.push_back(line);
  }
  return all;
}

}  // namespace hasten
