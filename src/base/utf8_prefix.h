// File: base/utf8_prefix.h (internal)
// Returns the first bytes of a UTF-8 text without a partial character at the end, which JSON could
// not hold. Other texts are cut anywhere.
//
//   const std::string_view prefix = utf8_prefix("caf\xC3\xA9", 4);  // "caf"
//
// Throws nothing. Thread rule: a pure function.
#pragma once

#include <cstddef>
#include <string_view>

namespace hasten {

inline std::string_view utf8_prefix(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  const auto continues = [&](std::size_t at) { return (text[at] & 0xC0) == 0x80; };
  std::size_t size = bytes;
  while (size > 0 && bytes - size < 3 && continues(size)) --size;
  return text.substr(0, continues(size) ? bytes : size);
}

}  // namespace hasten
