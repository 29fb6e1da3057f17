// A whole regular file in memory, copied on write: what is written to it stays in this process.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

namespace hasten::detail {

class MappedFile {
 public:
  // IoError "io.open" or "io.map"; a folder, pipe or device is "io.not-a-file". An empty file maps
  // to no bytes.
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
