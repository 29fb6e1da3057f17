// File: base/sha256.h (internal)
// SHA-256 of bytes that arrive in pieces, and of whole files.
//
//   Sha256 digest;
//   digest.add("abc");
//   const std::string text = digest.hex();     // 64 lower-case digits
//   const FileDigest file = digest_of_file("model.safetensors");
//
// Thread rule: an object belongs to one thread at a time. digest_of_file throws IoError "io.open"
// and "io.read".
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/internal_api.h"

struct evp_md_ctx_st;

namespace hasten {

class HASTEN_INTERNAL_API Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void add(const void* bytes, std::size_t size);
  void add(std::string_view bytes) { add(bytes.data(), bytes.size()); }
  // Returns the digest of everything that was added. Nothing may be added afterwards.
  std::string hex();

 private:
  evp_md_ctx_st* context_;
};

HASTEN_INTERNAL_API std::string sha256_of_text(std::string_view text);

struct FileDigest {
  std::uint64_t bytes = 0;
  std::string sha256;
  bool operator==(const FileDigest&) const = default;
};

HASTEN_INTERNAL_API FileDigest digest_of_file(const std::filesystem::path& path);

}  // namespace hasten
