// File: tokenizers/text_properties.h
// The properties of code points that the parts of a general tokenizer need in addition to
// unicode.h, and the normalization forms NFC, NFD, NFKC and NFKD. All of them are the same as in
// Hugging Face tokenizers 0.23.3.
//
//   const TextProperties& properties = TextProperties::get();
//   const bool is_number = properties.is(c, TextProperties::numeric);
//   std::vector<FormCharacter> result;
//   properties.convert(Form::nfkc, text, result);
//
// Thread rule: immutable once built; any thread. The first get() builds it (some milliseconds,
// 2.3 MB). Throws only std::bad_alloc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace hasten::tokenizers {

enum class Form { nfc, nfd, nfkc, nfkd };

// A character of a normalized text. `change` says where it comes from: 0 if it replaces the next
// character of the source, 1 if it is inserted after it, and -n if it replaces the next character
// and n characters after that one are removed.
struct FormCharacter {
  char32_t value;
  std::int32_t change;
};

class TextProperties {
 public:
  enum Flag : std::uint16_t {
    numeric = 1,           // separated by the pre-tokenizer Digits
    accent = 2,            // removed by the normalizer StripAccents
    grapheme_extend = 4,   // belongs to the grapheme of the character before it
    grapheme_control = 8,  // is a grapheme of its own
    grapheme_prepend = 16,
    pictograph = 32,
    changes_nfc = 64,   // a text without such characters is in the form NFC
    changes_nfd = 128,  // and so on
    changes_nfkc = 256,
    changes_nfkd = 512,
  };
  static const TextProperties& get();

  // `c` must be below 0x110000.
  bool is(char32_t c, int flags) const noexcept { return (flags_[c] & flags) != 0; }
  // Returns true if the text, which must be valid UTF-8, is in this form already. It may also
  // return false for a text that is.
  bool is_normalized(Form form, std::string_view text) const noexcept;
  // Replaces `out` by the characters of the text in this form.
  void convert(Form form, std::string_view text, std::vector<FormCharacter>& out) const;

 private:
  TextProperties();
  void mark_changes();
  void decompose(Form form, char32_t c, std::u32string& out) const;
  std::optional<char32_t> compose(char32_t first, char32_t second) const noexcept;

  std::vector<std::uint16_t> flags_;
  std::unordered_map<char32_t, std::u32string> compatibility_;  // full decompositions
  std::unordered_map<std::uint64_t, char32_t> compositions_;    // by first << 32 | second
};

}  // namespace hasten::tokenizers
