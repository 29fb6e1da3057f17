// File: base/hexadecimal.h (internal)
// Writes bytes as hexadecimal digits. Thread rule: any thread.
#pragma once

#include <span>
#include <string>

namespace hasten {

// Returns two lower-case digits for each byte.
inline std::string to_hex(std::span<const unsigned char> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) (text += kDigits[byte >> 4]) += kDigits[byte & 15];
  return text;
}

}  // namespace hasten
