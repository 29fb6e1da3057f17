// File: launch/exec_words.h (internal)
#pragma once

#include <string>
#include <vector>

namespace hasten {

// Returns the words as execve takes them, with a null at the end. The pointers point into `words`.
inline std::vector<char*> exec_words(const std::vector<std::string>& words) {
  std::vector<char*> out;
  for (const std::string& word : words) out.push_back(const_cast<char*>(word.c_str()));
  out.push_back(nullptr);
  return out;
}

}  // namespace hasten
