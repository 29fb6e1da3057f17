// File: base/file_checksum.h (internal)
// The checksum by which a manifest recognizes a file.
//
//   const FileChecksum found = checksum_of_file("model.safetensors");
//   if (found != expected) fail(str("got ", name_of(found.algorithm), " ", found.digits));
//
// Like SHA-256, XXH3-128 detects every accidental change, but it runs at the speed of the memory
// instead of about 1 GB/s. It does not detect forgery, and neither does a manifest, which anyone
// can rewrite. Thread rule: any thread. checksum_of_file throws IoError "io.open", "io.read" and
// "io.checksum". Source: XXH128 of https://github.com/Cyan4973/xxHash, in its canonical form, as
// `xxhsum -H2` prints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/internal_api.h"

namespace hasten {

enum class ChecksumAlgorithm { xxh3, sha256 };  // sha256: manifests of version 1 and 2.

// "XXH3-128" or "SHA-256", for messages.
HASTEN_INTERNAL_API const char* name_of(ChecksumAlgorithm algorithm);

struct FileChecksum {
  std::uint64_t bytes = 0;
  ChecksumAlgorithm algorithm = ChecksumAlgorithm::xxh3;
  std::string digits;  // 32 or 64 lower-case hexadecimal digits.
  bool operator==(const FileChecksum&) const = default;
};

// Computes the XXH3-128 of bytes that arrive in pieces.
class HASTEN_INTERNAL_API RunningChecksum {
 public:
  RunningChecksum();
  void add(std::string_view bytes);
  FileChecksum finish() const;

 private:
  std::shared_ptr<void> state_;  // of a type that only the source file knows
  std::uint64_t bytes_ = 0;
};

HASTEN_INTERNAL_API FileChecksum checksum_of_file(
    const std::filesystem::path& path, ChecksumAlgorithm algorithm = ChecksumAlgorithm::xxh3);

// The digits of XXH3-128.
HASTEN_INTERNAL_API std::string xxh3_of_text(std::string_view text);

}  // namespace hasten
