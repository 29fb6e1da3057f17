// The check values of both checksums, and every length around the eight bytes that a step
// processes.
#include "base/crc32.h"

#include <doctest/doctest.h>

#include <string>

namespace base_crc32_test {

using namespace hasten;

TEST_CASE("crc32: both checksums have the published check values") {
  CHECK(crc32("") == 0);
  CHECK(crc32c("") == 0);
  CHECK(crc32("123456789") == 0xCBF43926);
  CHECK(crc32c("123456789") == 0xE3069283);
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AA);  // RFC 3720, B.4
}

TEST_CASE("crc32: a changed byte changes the checksum wherever it is") {
  for (std::size_t size = 1; size < 20; ++size) {
    const std::string text(size, 'a');
    for (std::size_t at = 0; at < size; ++at) {
      std::string other = text;
      other[at] = 'b';
      CHECK(crc32(other) != crc32(text));
      CHECK(crc32c(other) != crc32c(text));
    }
  }
}

TEST_CASE("crc32: the instruction of the CPU gives the checksum of the tables") {
  std::string text;
  for (int size = 0; size < 300; ++size) {
    CHECK(crc32c(text) == crc32c_by_tables(text));
    text += static_cast<char>(size * 37 % 251);
  }
}

TEST_CASE("crc32: the checksum of two parts is that of the whole") {
  const std::string text = "a text of more than eight bytes";
  for (std::size_t at = 0; at <= text.size(); ++at) {
    const std::string first = text.substr(0, at), second = text.substr(at);
    CHECK(crc32c(second, crc32c(first)) == crc32c(text));
    CHECK(crc32c_by_tables(second, crc32c_by_tables(first)) == crc32c(text));
  }
}

}  // namespace base_crc32_test
