#include "tokenizers/pipeline/charsmap.h"

#include <cstring>

#include "base/utf8.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "tokenizers/text_properties.h"

namespace hasten::tokenizers {
namespace {

constexpr char32_t kJoiner = 0x200D;

std::uint32_t offset_of(std::uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }
std::uint32_t label_of(std::uint32_t unit) { return unit & 0x800000FF; }
bool has_value(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }

[[noreturn]] void throw_bad(const std::string& where, const std::string& got) {
  throw DataError("tokenizers.bad-charsmap",
                  {.what = where, .got = got, .expected = "a map of SentencePiece in base64"});
}

int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

enum class Hangul { none, leading, vowel, trailing, open, closed };

Hangul hangul_kind(char32_t c) {
  if ((c >= 0x1100 && c <= 0x115F) || (c >= 0xA960 && c <= 0xA97C)) return Hangul::leading;
  if ((c >= 0x1160 && c <= 0x11A7) || (c >= 0xD7B0 && c <= 0xD7C6)) return Hangul::vowel;
  if ((c >= 0x11A8 && c <= 0x11FF) || (c >= 0xD7CB && c <= 0xD7FB)) return Hangul::trailing;
  if (c < 0xAC00 || c > 0xD7A3) return Hangul::none;
  return (c - 0xAC00) % 28 == 0 ? Hangul::open : Hangul::closed;
}

bool joins_hangul(char32_t before, char32_t after) {
  const Hangul first = hangul_kind(before), second = hangul_kind(after);
  if (first == Hangul::leading) return second != Hangul::none && second != Hangul::trailing;
  if (first == Hangul::vowel || first == Hangul::open)
    return second == Hangul::vowel || second == Hangul::trailing;
  return (first == Hangul::trailing || first == Hangul::closed) && second == Hangul::trailing;
}

bool is_flag_letter(char32_t c) { return c >= 0x1F1E6 && c <= 0x1F1FF; }

}  // namespace

std::string decode_base64(std::string_view text, const std::string& where) {
  if (text.size() % 4 != 0) throw_bad(where, str(text.size(), " letters"));
  std::size_t padding = 0;
  while (padding < 2 && !text.empty() && text.back() == '=') {
    text.remove_suffix(1);
    ++padding;
  }
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int value = base64_value(c);
    if (value < 0) throw_bad(where, str("byte ", static_cast<int>(static_cast<unsigned char>(c))));
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 0xFF);
  }
  return out;
}

Charsmap::Charsmap(std::string_view bytes, const std::string& where) {
  std::uint32_t size = 0;
  if (bytes.size() < 4) throw_bad(where, str(bytes.size(), " bytes"));
  std::memcpy(&size, bytes.data(), 4);
  if (size % 4 != 0 || size == 0 || size > bytes.size() - 4)
    throw_bad(where, str(size, " bytes for the double array, and ", bytes.size() - 4, " in all"));
  units_.resize(size / 4);
  std::memcpy(units_.data(), bytes.data() + 4, size);
  replacements_ = bytes.substr(4 + size);
  if (!is_utf8(replacements_)) throw_bad(where, "replacements that are not UTF-8");
}

std::optional<std::string_view> Charsmap::find(std::string_view text) const noexcept {
  std::uint32_t at = offset_of(units_[0]);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0) return std::nullopt;
    at ^= byte;
    if (at >= units_.size() || label_of(units_[at]) != byte) return std::nullopt;
    const std::uint32_t unit = units_[at];
    at ^= offset_of(unit);
    if (!has_value(unit)) continue;
    if (at >= units_.size()) return std::nullopt;
    const std::size_t begin = units_[at] & 0x7FFFFFFF;
    // A valid map contains no place inside a character or after the end.
    if (begin > replacements_.size() ||
        (begin < replacements_.size() && (replacements_[begin] & 0xC0) == 0x80))
      return std::nullopt;
    const std::size_t end = replacements_.find('\0', begin);
    return std::string_view(replacements_)
        .substr(begin, end == std::string::npos ? end : end - begin);
  }
  return std::nullopt;
}

std::size_t grapheme_end(std::string_view text, std::size_t at) noexcept {
  const TextProperties& properties = TextProperties::get();
  DecodedCharacter before = decode_utf8(text.data() + at);
  at += before.size;
  bool after_pictograph = properties.is(before.value, TextProperties::pictograph);
  int flag_letters = is_flag_letter(before.value) ? 1 : 0;
  while (at < text.size()) {
    const DecodedCharacter next = decode_utf8(text.data() + at);
    const char32_t c = next.value;
    const bool line_end = before.value == '\r' && c == '\n';
    if (!line_end && (properties.is(before.value, TextProperties::grapheme_control) ||
                      properties.is(c, TextProperties::grapheme_control)))
      return at;
    const bool extends = properties.is(c, TextProperties::grapheme_extend);
    const bool joins = line_end || extends || joins_hangul(before.value, c) ||
                       properties.is(before.value, TextProperties::grapheme_prepend) ||
                       (after_pictograph && before.value == kJoiner &&
                        properties.is(c, TextProperties::pictograph)) ||
                       (is_flag_letter(c) && flag_letters % 2 == 1);
    if (!joins) return at;
    if (!extends) after_pictograph = properties.is(c, TextProperties::pictograph);
    flag_letters = is_flag_letter(c) ? flag_letters + 1 : 0;
    before = next;
    at += next.size;
  }
  return at;
}

}  // namespace hasten::tokenizers
