// File: formats/mapped_file.h (internal)
// A regular file mapped into memory as a whole, copy-on-write: changes stay in this process.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

namespace hasten::detail {

class MappedFile {
 public:
  // Throws IoError "io.open" or "io.map", and "io.not-a-file" for a folder, pipe or device. An
  // empty file maps to no bytes.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  char* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  std::string_view bytes() const noexcept { return {data_, size_}; }

 private:
  char* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace hasten::detail
