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

XXH3_state_t* state_of(const std::shared_ptr<void>& state) {
  return static_cast<XXH3_state_t*>(state.get());
}

}  // namespace

const char* name_of(ChecksumAlgorithm algorithm) {
  return algorithm == ChecksumAlgorithm::xxh3 ? "XXH3-128" : "SHA-256";
}

// The state needs the alignment of its type, which XXH3_createState keeps.
RunningChecksum::RunningChecksum()
    : state_(XXH3_createState(),
             [](void* state) { XXH3_freeState(static_cast<XXH3_state_t*>(state)); }) {
  if (!state_) throw std::bad_alloc();
  XXH3_128bits_reset(state_of(state_));
}

void RunningChecksum::add(std::string_view bytes) {
  XXH3_128bits_update(state_of(state_), bytes.data(), bytes.size());
  bytes_ += bytes.size();
}

FileChecksum RunningChecksum::finish() const {
  return {.bytes = bytes_,
          .algorithm = ChecksumAlgorithm::xxh3,
          .digits = digits_of(XXH3_128bits_digest(state_of(state_)))};
}

FileChecksum checksum_of_file(const std::filesystem::path& path, ChecksumAlgorithm algorithm) {
  if (algorithm == ChecksumAlgorithm::xxh3) {
    RunningChecksum running;
    read_blocks(path, [&](std::string_view block) { running.add(block); });
    return running.finish();
  }
  FileDigest found = digest_of_file(path);
  return {.bytes = found.bytes, .algorithm = algorithm, .digits = std::move(found.sha256)};
}

std::string xxh3_of_text(std::string_view text) {
  return digits_of(XXH3_128bits(text.data(), text.size()));
}

}  // namespace hasten
