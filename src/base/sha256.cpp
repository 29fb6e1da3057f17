#include "base/sha256.h"

#include <openssl/evp.h>

#include "base/hexadecimal.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"

namespace hasten {

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  if (context_ == nullptr || EVP_DigestInit_ex(context_, EVP_sha256(), nullptr) != 1) {
    EVP_MD_CTX_free(context_);
    throw IoError("io.checksum", {.what = "OpenSSL has no SHA-256",
                                  .hint = "check the configuration of OpenSSL on this machine"});
  }
}

Sha256::~Sha256() { EVP_MD_CTX_free(context_); }

void Sha256::add(const void* bytes, std::size_t size) { EVP_DigestUpdate(context_, bytes, size); }

std::string Sha256::hex() {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(context_, bytes, &size);
  return to_hex({bytes, size});
}

std::string sha256_of_text(std::string_view text) {
  Sha256 digest;
  digest.add(text);
  return digest.hex();
}

FileDigest digest_of_file(const std::filesystem::path& path) {
  Sha256 digest;
  FileDigest found;
  read_blocks(path, [&](std::string_view block) {
    digest.add(block);
    found.bytes += block.size();
  });
  found.sha256 = digest.hex();
  return found;
}

}  // namespace hasten
