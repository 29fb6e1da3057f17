// File: base/first_line.h (internal)
// Reads files that have one line, such as many files in /proc and /sys.
//
//   const std::string id = first_line("/proc/sys/kernel/random/boot_id");
//
// Thread rule: any thread. Throws nothing but std::bad_alloc.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "hasten/base/text.h"

namespace hasten {

// Returns the first line without blanks at its ends, or an empty text if the file cannot be read.
inline std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return std::string(trim(line));
}

}  // namespace hasten
