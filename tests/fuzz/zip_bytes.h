// Writes archives with correct checksums, so that a fuzzer need not guess them.
//
//   std::string bytes = archive_of({{"m/byteorder", "little"}});
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/crc32.h"

namespace hasten {

// Returns the lowest `size` bytes of the value in little-endian order.
inline std::string zip_number(std::uint64_t value, int size) {
  std::string text;
  for (int i = 0; i < size; ++i) text += static_cast<char>(i < 8 ? value >> (8 * i) & 0xFF : 0);
  return text;
}

// Returns a zip archive with these records, which are not compressed.
inline std::string archive_of(const std::map<std::string, std::string>& records) {
  std::string out, directory;
  for (const auto& [name, content] : records) {
    const std::size_t offset = out.size();
    const std::string common = zip_number(20, 2) + zip_number(0, 8) +
                               zip_number(crc32(content), 4) + zip_number(content.size(), 4) +
                               zip_number(content.size(), 4) + zip_number(name.size(), 2) +
                               zip_number(0, 2);
    out += zip_number(0x04034b50, 4) + common + name + content;
    directory += zip_number(0x02014b50, 4) + zip_number(20, 2) + common + zip_number(0, 10) +
                 zip_number(offset, 4) + name;
  }
  const std::size_t begin = out.size();
  return out + directory + zip_number(0x06054b50, 4) + zip_number(0, 4) +
         zip_number(records.size(), 2) + zip_number(records.size(), 2) +
         zip_number(directory.size(), 4) + zip_number(begin, 4) + zip_number(0, 2);
}

}  // namespace hasten
