// File: tokenizers/code_sets.h
// Sets of code points: the meaning of the classes and escapes of a regular expression.
//
//   CodeSet set = property_set("L").value();
//   set = set.unite(CodeSet::of('0', '9')).complement();
//   const bool inside = set.contains(U'!');
//
// Thread rule: plain values and pure functions. They throw only std::bad_alloc.
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace hasten::tokenizers {

class CodeSet {
 public:
  static constexpr char32_t kLast = 0x10FFFF;
  using Range = std::pair<char32_t, char32_t>;  // [first, second]

  CodeSet() = default;
  explicit CodeSet(std::vector<Range> ranges);  // in any order; they may overlap
  static CodeSet of(char32_t first, char32_t last) { return CodeSet({{first, last}}); }
  static CodeSet of(char32_t c) { return of(c, c); }

  const std::vector<Range>& ranges() const noexcept { return ranges_; }  // sorted, disjoint
  bool contains(char32_t c) const noexcept;
  CodeSet unite(const CodeSet& other) const;
  CodeSet intersect(const CodeSet& other) const;
  CodeSet complement() const;
  bool operator==(const CodeSet& other) const = default;

 private:
  std::vector<Range> ranges_;
};

// Returns the characters of a property. Its name is one that Oniguruma uses: a general category
// ("L", "Lu", "Letter"), a script ("Han"), or one of POSIX's classes ("alpha"). Case, blanks, - and
// _ in the name are ignored. Returns nothing if the name is unknown.
std::optional<CodeSet> property_set(std::string_view name);

CodeSet regex_white_set();  // \s
CodeSet regex_word_set();   // \w
CodeSet regex_digit_set();  // \d

}  // namespace hasten::tokenizers
