#include "launch/digest.h"

#include <openssl/evp.h>

#include <fstream>
#include <memory>

#include "base/hexadecimal.h"
#include "launch/programs.h"

namespace hasten {

std::string digest_of_program(const std::vector<std::string>& program) {
  std::ifstream file(find_program(program[0]), std::ios::binary);
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> digest(EVP_MD_CTX_new(),
                                                                  EVP_MD_CTX_free);
  EVP_DigestInit_ex(digest.get(), EVP_sha256(), nullptr);
  char buffer[64 << 10];
  while (file.read(buffer, sizeof buffer) || file.gcount() > 0)
    EVP_DigestUpdate(digest.get(), buffer, static_cast<std::size_t>(file.gcount()));
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(digest.get(), bytes, &size);
  return to_hex({bytes, size});
}

}  // namespace hasten
