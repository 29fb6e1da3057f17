// File: base/utf8.h (internal)
// Checks, reads, writes and cuts UTF-8. The tokenizer looks at every byte of every text, so all
// functions are inline.
//
//   std::string repaired;
//   if (!is_utf8(text)) text = repaired = repair_utf8(text);
//   for (std::size_t at = 0; at < text.size();) at += decode_utf8(text.data() + at).size;
//
// Thread rule: pure functions. They throw only std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace hasten {

struct DecodedCharacter {
  char32_t value;
  std::uint32_t size;  // in bytes
};

// Returns the character that starts at `at`. The text must be valid.
inline DecodedCharacter decode_utf8(const char* at) noexcept {
  const auto byte = [at](int i) {
    return static_cast<char32_t>(static_cast<unsigned char>(at[i]));
  };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4};
}

// Returns the character that ends before `end`. The text must be valid.
inline DecodedCharacter decode_utf8_before(const char* end) noexcept {
  const char* at = end - 1;
  while ((static_cast<unsigned char>(*at) & 0xC0) == 0x80) --at;
  return decode_utf8(at);
}

// Writes up to four bytes and returns their number.
inline std::uint32_t encode_utf8(char32_t c, char* out) noexcept {
  if (c < 0x80) {
    out[0] = static_cast<char>(c);
    return 1;
  }
  const auto tail = [c](int shift) { return static_cast<char>(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x800) {
    out[0] = static_cast<char>(0xC0 | c >> 6);
    out[1] = tail(0);
    return 2;
  }
  if (c < 0x10000) {
    out[0] = static_cast<char>(0xE0 | c >> 12);
    out[1] = tail(6);
    out[2] = tail(0);
    return 3;
  }
  out[0] = static_cast<char>(0xF0 | c >> 18);
  out[1] = tail(12);
  out[2] = tail(6);
  out[3] = tail(0);
  return 4;
}

inline void append_utf8(char32_t c, std::string& out) {
  char bytes[4];
  out.append(bytes, encode_utf8(c, bytes));
}

// The number of ASCII bytes at the start of the text, tested eight at a time.
inline std::size_t ascii_prefix(std::string_view text) noexcept {
  std::size_t at = 0;
  for (std::uint64_t eight; at + 8 <= text.size(); at += 8) {
    std::memcpy(&eight, text.data() + at, 8);
    if (eight & 0x8080808080808080u) break;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

struct Utf8Sequence {
  std::uint32_t size;  // bytes of the character, or of its longest valid start if it is incomplete
  bool valid;
};

// Returns the sequence at the start of `text`, which must not be empty, according to the Unicode
// standard's table of well-formed sequences.
inline Utf8Sequence next_utf8_sequence(std::string_view text) noexcept {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const std::uint32_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // Only the second byte has narrower limits: they exclude overlong forms, surrogates and code
  // points above U+10FFFF.
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::uint32_t i = 1; i < size; ++i) {
    if (i == text.size()) return {i, false};
    const bool fits = i == 1 ? byte(i) >= low && byte(i) <= high : (byte(i) & 0xC0) == 0x80;
    if (!fits) return {i, false};
  }
  return {size, true};
}

inline bool is_utf8(std::string_view text) noexcept {
  std::size_t at = ascii_prefix(text);
  while (at < text.size()) {
    const Utf8Sequence sequence = next_utf8_sequence(text.substr(at));
    if (!sequence.valid) return false;
    at += sequence.size;
  }
  return true;
}

// Returns the text with one U+FFFD for each longest valid start of an incomplete character and each
// byte that starts no character, as Python's errors="replace" and Rust's from_utf8_lossy do.
inline std::string repair_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 8);
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Sequence sequence = next_utf8_sequence(text.substr(at));
    if (sequence.valid)
      out.append(text.substr(at, sequence.size));
    else
      out += "\xEF\xBF\xBD";
    at += sequence.size;
  }
  return out;
}

// The number of characters in valid text.
inline std::uint32_t code_point_count(std::string_view text) noexcept {
  std::uint32_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

// Returns the first bytes of a UTF-8 text without a partial character at the end, because JSON
// could not hold one. Texts that are not UTF-8 are cut anywhere: utf8_prefix("caf\xC3\xA9", 4) is
// "caf".
inline std::string_view utf8_prefix(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  const auto continues = [&](std::size_t at) { return (text[at] & 0xC0) == 0x80; };
  std::size_t size = bytes;
  while (size > 0 && bytes - size < 3 && continues(size)) --size;
  return text.substr(0, continues(size) ? bytes : size);
}

}  // namespace hasten
