// Changes files as a failing disk does.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>

#include "hasten/base/files.h"

namespace hasten {

// Changes a bit of the file and nothing else that the system knows about it, as if the byte had
// been changed on its way to the file.
inline void change_byte_unnoticed(const std::filesystem::path& file, std::size_t at) {
  const auto time = std::filesystem::last_write_time(file);
  std::string bytes = read_file(file);
  bytes.at(at) = static_cast<char>(bytes.at(at) ^ 1);
  std::fstream(file, std::ios::binary | std::ios::in | std::ios::out) << bytes;
  std::filesystem::last_write_time(file, time);
}

}  // namespace hasten
