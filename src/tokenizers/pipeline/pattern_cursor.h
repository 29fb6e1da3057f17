// File: tokenizers/pipeline/pattern_cursor.h
// Reads a regular expression and keeps the place up to which it has been read.
//
//   PatternCursor cursor("[a-z]+", "file: pre_tokenizer.pattern");
//   if (cursor.accept("[")) add(read_class(cursor, false));
//   if (cursor.is_done()) cursor.throw_bad("its end", "a character");
//
// Throws DataError "tokenizers.bad-pattern", also in the constructor for a pattern that is not
// UTF-8 or is too long. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::tokenizers {

class PatternCursor {
 public:
  // Every message begins with `where`. Both texts must outlive the cursor.
  PatternCursor(std::string_view regex, const std::string& where) : regex_(regex), where_(where) {
    if (!is_utf8(regex)) throw_bad("a byte that is not UTF-8", "");
    if (regex.size() > kMaxBytes) throw_bad(str(regex.size(), " bytes"), "fewer");
  }

  [[noreturn]] void throw_bad(const std::string& got, const std::string& expected) const {
    const std::string quoted = "\"" + std::string(utf8_prefix(regex_, 200)) + "\"";
    throw DataError("tokenizers.bad-pattern",
                    {.what = str(where_, ": the regular expression ", quoted, " at byte ", at_),
                     .got = got,
                     .expected = expected});
  }

  bool is_done() const { return at_ >= regex_.size(); }
  bool next_is(std::string_view text) const { return rest().starts_with(text); }
  bool accept(std::string_view text) {
    if (!next_is(text)) return false;
    at_ += text.size();
    return true;
  }
  char32_t read_character() {
    if (is_done()) throw_bad("its end", "a character");
    const DecodedCharacter character = decode_utf8(regex_.data() + at_);
    at_ += character.size;
    return character.value;
  }
  std::string_view rest() const { return regex_.substr(at_); }
  char last_byte() const { return regex_[at_ - 1]; }
  void skip(std::size_t bytes) { at_ += bytes; }
  void go_back(std::size_t bytes) { at_ -= bytes; }

  // These begin and end a group or a class, which may contain others.
  void enter(const char* what) {
    if (++depth_ > kMaxDepth)
      throw_bad(str(what, " that are nested too deeply"), str("at most ", kMaxDepth));
  }
  void leave() { --depth_; }

 private:
  static constexpr int kMaxDepth = 50;
  static constexpr std::size_t kMaxBytes = 1 << 16;

  std::string_view regex_;
  const std::string& where_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

inline bool is_letter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
inline bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }
inline char lower_letter(char32_t c) { return static_cast<char>(c | 0x20); }

}  // namespace hasten::tokenizers
