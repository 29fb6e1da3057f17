#include "base/file_checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <memory>
#include <new>

#include "base/hexadecimal.h"
#include "base/sha256.h"
#include "hasten/base/files.h"

namespace hasten {
namespace {

std::string digits_of(XXH128_hash_t hash) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  return to_hex({bytes.digest, sizeof bytes.digest});
}

FileChecksum xxh3_of_file(const std::filesystem::path& path) {
  // The state needs the alignment of its type, which XXH3_createState keeps.
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  if (!state) throw std::bad_alloc();
  XXH3_128bits_reset(state.get());
  FileChecksum found;
  read_blocks(path, [&](std::string_view block) {
    XXH3_128bits_update(state.get(), block.data(), block.size());
    found.bytes += block.size();
  });
  found.digits = digits_of(XXH3_128bits_digest(state.get()));
  return found;
}

}  // namespace

const char* name_of(ChecksumAlgorithm algorithm) {
  return algorithm == ChecksumAlgorithm::xxh3 ? "XXH3-128" : "SHA-256";
}

FileChecksum checksum_of_file(const std::filesystem::path& path, ChecksumAlgorithm algorithm) {
  if (algorithm == ChecksumAlgorithm::xxh3) return xxh3_of_file(path);
  FileDigest found = digest_of_file(path);
  return {.bytes = found.bytes, .algorithm = algorithm, .digits = std::move(found.sha256)};
}

std::string xxh3_of_text(std::string_view text) {
  return digits_of(XXH3_128bits(text.data(), text.size()));
}

}  // namespace hasten
