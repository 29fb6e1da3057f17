// File: tokenizers/pipeline/pattern.h
// Matches the regular expressions of tokenizer.json, which are written for Oniguruma, with PCRE2.
//
//   const Pattern pattern("\\p{L}+|\\s+(?!\\S)|\\s+", "file: pre_tokenizer.pattern");
//   Matcher matcher;
//   std::vector<Match> matches;
//   pattern.find_all("a text", matcher, matches);     // bytes [0, 1), [1, 2), [2, 6)
//
// A pattern is translated, not passed to PCRE2 as it is. Each set of characters that it names
// (\p{L}, \s, [a-z], a letter beyond ASCII) comes from hasten's own tables, and characters beyond
// ASCII that the pattern does not distinguish share one code from 128 to 255. So PCRE2 runs on one
// byte per character, which is fast, and the result does not depend on PCRE2's version of Unicode.
// The codes of an ASCII text are its own bytes.
//
// Thread rule: a Pattern is immutable and safe from many threads, each with its own Matcher. The
// constructor throws DataError "tokenizers.bad-pattern" for a pattern that is wrong or that uses a
// feature that is not translated: back references, scripts without a table, multi-character case
// folding, \G, \K, \R, \X, and letters beyond ASCII in (?i). find_all throws it for a pattern that
// exceeds PCRE2's limits on a text.
// Source: Oniguruma 6.9's document RE (syntax of Ruby) and its Rust binding's find_iter.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/code_point_table.h"

namespace hasten::tokenizers {

// The bytes [begin, end) of a text.
struct Match {
  std::uint32_t begin;
  std::uint32_t end;
};

struct Translation;  // pattern_syntax.h

// The memory for one match at a time. It is allocated for the first match.
class Matcher {
 public:
  Matcher();
  ~Matcher();
  Matcher(Matcher&&) noexcept;
  Matcher& operator=(Matcher&&) = delete;

 private:
  friend class Pattern;
  struct Memory;
  Memory& memory();
  std::unique_ptr<Memory> memory_;
};

// Maps each code point to a byte: ASCII to itself, others to a code from 128 to 255.
class CharacterCodes {
 public:
  // `codes` has a row for each range of code points beyond ASCII, sorted, without gaps.
  struct Row {
    char32_t first;
    std::uint8_t code;
  };
  explicit CharacterCodes(const std::vector<Row>& rows);
  std::uint8_t of(char32_t c) const noexcept { return codes_[c]; }

 private:
  CodePointTable<std::uint8_t> codes_;
};

class Pattern {
 public:
  // Every message begins with `where`.
  Pattern(std::string_view regex, const std::string& where);
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) = delete;

  // Replaces `matches` by the matches in the text, in order. The text must be valid UTF-8. An empty
  // match directly after the previous match does not count.
  void find_all(std::string_view text, Matcher& matcher, std::vector<Match>& matches) const;
  // True if the pattern may match an empty text.
  bool matches_empty() const noexcept { return matches_empty_; }

 private:
  Pattern(std::string_view regex, const std::string& where, const Translation& translation);
  bool find_next(std::string_view codes, std::size_t from, Matcher& matcher, Match& match) const;

  struct Compiled;
  std::string regex_, where_;
  CharacterCodes codes_;
  std::unique_ptr<Compiled> compiled_;
  bool matches_empty_ = false;
};

}  // namespace hasten::tokenizers
