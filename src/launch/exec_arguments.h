// File: launch/exec_arguments.h (internal)
#pragma once

#include <string>
#include <vector>

namespace hasten {

// Returns the arguments as execve takes them, with a null at the end. The pointers point into
// `arguments`.
inline std::vector<char*> exec_arguments(const std::vector<std::string>& arguments) {
  std::vector<char*> out;
  for (const std::string& argument : arguments) out.push_back(const_cast<char*>(argument.c_str()));
  out.push_back(nullptr);
  return out;
}

}  // namespace hasten
