// File: formats/zip_archive.h (internal)
// Reads the zip archives that torch.export.save, torch.save and torch::save write: records that are
// stored without compression below one common folder.
//
//   const ZipArchive archive("model.pt2");
//   std::string_view graph = archive.record("models/model.json");  // without the common folder
//
// The file is mapped, and records are views of it. The whole directory is checked when the archive
// is opened. Encrypted, overlapping and repeated records, sizes that reach past the end, and names
// such as "../x" are refused. Compressed records are refused, too, but in archives of torch.save
// only when they are read. So no record can inflate or lie outside the file. Throws DataError with
// the code of the kind, IoError "io.*". Thread rule: immutable, safe on any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "formats/mapped_file.h"

namespace hasten {

// The function that writes such archives, and how its archives are checked.
struct ArchiveKind {
  const char* code;  // the code of the errors
  const char* writer;
  // True if the archive may have compressed records, such as LibTorch's code, which cannot be read.
  bool may_compress;
};
inline constexpr ArchiveKind kExportedArchive{"exported.archive", "torch.export.save", false};
inline constexpr ArchiveKind kPickleArchive{"pickle.archive", "torch.save", true};

class ZipArchive {
 public:
  explicit ZipArchive(const std::filesystem::path& path,
                      const ArchiveKind& kind = kExportedArchive);

  // The path as the caller gave it, for messages.
  const std::string& file() const noexcept { return file_; }
  // The size of the file.
  std::size_t bytes() const noexcept { return mapped_.bytes().size(); }
  // The name of the common folder.
  const std::string& folder() const noexcept { return folder_; }
  // The names of all records in the order of the file, without the common folder.
  const std::vector<std::string>& names() const noexcept { return names_; }
  bool contains(const std::string& name) const { return records_.contains(name); }
  // Returns the bytes of a record, which must exist. Checks them against the record's checksum.
  std::string_view record(const std::string& name) const;
  // Returns the same bytes for tensors that may write to them: the mapping is copied on write.
  char* mutable_record(const std::string& name) const;

 private:
  struct Record {
    std::size_t begin = 0, size = 0;
    std::uint32_t checksum = 0;
    bool is_compressed = false;
  };

  struct Directory;
  Directory find_directory() const;
  void read_entry(std::size_t& at, std::size_t end);
  Record locate(const std::string& name, std::uint64_t header, std::uint64_t size,
                std::size_t end) const;
  void strip_common_folder();
  void check_overlaps() const;
  std::uint64_t number(std::size_t at, int bytes) const;
  [[noreturn]] void fail_compressed(const std::string& name) const;
  [[noreturn]] void fail(const std::string& what, const std::string& got = "") const;

  ArchiveKind kind_;
  std::string file_, folder_;
  detail::MappedFile mapped_;
  std::vector<std::string> names_;
  std::map<std::string, Record> records_;
};

}  // namespace hasten
