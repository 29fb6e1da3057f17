// File: base/written_files.h (internal)
// Checksums of files from the bytes in memory, for a manifest. The checksum of a file as it is read
// back would be right for a byte that was changed on its way to the file.
//
//   record_written_files("run/.checkpoint-5.partial-1");   // from now on, until the folder is moved
//   RecordedFile file("run/.checkpoint-5.partial-1/model.safetensors");
//   file.write(header);
//   file.write_part("fc.weight", bytes);
//   file.commit();
//   const auto written = written_file("run/.checkpoint-5.partial-1/model.safetensors");
//
// Outside of such folders a RecordedFile computes nothing. Thread rule: the functions are safe on
// any thread; an object belongs to one thread at a time. Throws what AtomicFile throws.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/file_checksum.h"
#include "base/internal_api.h"
#include "hasten/base/files.h"

namespace hasten {

struct WrittenFile {
  FileChecksum checksum;
  std::map<std::string, std::uint32_t> parts;  // the CRC-32C of each part, by its name
};

// Keeps the checksums of the files that this process writes below the folder. StagedDirectory
// forgets those of its folder at the end.
HASTEN_INTERNAL_API void record_written_files(const std::filesystem::path& folder);
HASTEN_INTERNAL_API void forget_written_files(const std::filesystem::path& folder);
// Returns the checksums if a RecordedFile below such a folder has written the file and nothing has
// changed it since. The file may have been moved.
HASTEN_INTERNAL_API std::optional<WrittenFile> written_file(const std::filesystem::path& file);

// An AtomicFile that computes these checksums from the bytes that it writes.
class HASTEN_INTERNAL_API RecordedFile {
 public:
  explicit RecordedFile(const std::filesystem::path& path);

  void write(std::string_view bytes);
  void write_part(const std::string& name, std::string_view bytes);
  void commit();

 private:
  // Writes the bytes and adds them to the checksum of the file and to `part`.
  void write_recorded(std::string_view bytes, std::uint32_t& part);

  std::filesystem::path path_;
  AtomicFile file_;
  std::optional<RunningChecksum> checksum_;  // unset if the file is not recorded
  std::map<std::string, std::uint32_t> parts_;
};

}  // namespace hasten
