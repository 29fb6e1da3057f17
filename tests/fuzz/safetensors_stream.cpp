// Reads files from standard input. For each file the input has 8 bytes with its size (little
// endian), and then its bytes. The program writes one byte for each file: 1 if hasten accepts the
// header of a safetensors file, and 0 if it refuses it. safetensors_differential.py compares these
// answers with the answers of Python's package.
#include <cstdint>
#include <cstdio>
#include <string>

#include "formats/safetensors_header.h"
#include "hasten/base/error.h"

int main() {
  std::uint64_t size = 0;
  std::string bytes;
  while (std::fread(&size, sizeof size, 1, stdin) == 1) {
    bytes.resize(size);
    if (size > 0 && std::fread(bytes.data(), size, 1, stdin) != 1) return 1;
    char accepted = 1;
    try {
      (void)hasten::safetensors::parse_header(bytes, "input");
    } catch (const hasten::DataError&) {
      accepted = 0;
    }
    std::fputc(accepted, stdout);
    std::fflush(stdout);
  }
  return 0;
}
