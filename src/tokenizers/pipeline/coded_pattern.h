// File: tokenizers/pipeline/coded_pattern.h
// A regular expression for PCRE2 that is put together from texts and from sets of characters, which
// become classes of character codes (pattern.h).
//
//   CodedPattern pattern;
//   pattern.add_set(property_set("L").value());
//   pattern.add_text("+");
//   if (const auto translation = pattern.translation()) compile(translation->regex);
//
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tokenizers/code_sets.h"
#include "tokenizers/pipeline/pattern_syntax.h"

namespace hasten::tokenizers {

class CodedPattern {
 public:
  void add_text(std::string text) { pieces_.push_back({std::move(text), -1}); }
  // Adds one character of the set.
  void add_set(CodeSet set);
  // The number of pieces so far.
  std::size_t size() const { return pieces_.size(); }
  // Turns the pieces from `begin` on into a group.
  void group_from(std::size_t begin);
  // Assigns a code to each group of characters beyond ASCII that all sets treat alike, and writes
  // the sets as classes of codes. Returns nothing if there are more than 128 codes.
  std::optional<Translation> translation() const;

 private:
  // Text for PCRE2, or one character of a set.
  struct Piece {
    std::string text;
    int set = -1;
  };
  // The code of each group of characters. The key has an element for each set, which is true if the
  // set contains the characters.
  using Codes = std::map<std::vector<bool>, std::uint8_t>;
  std::string class_of(std::size_t set, const Codes& codes) const;

  std::vector<Piece> pieces_;
  std::vector<CodeSet> sets_;
};

// Returns a byte in the form \x41.
std::string escaped_byte(unsigned char byte);

}  // namespace hasten::tokenizers
