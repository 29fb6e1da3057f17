#include "tokenizers/pipeline/character_class.h"

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace hasten::tokenizers {
namespace {

char32_t read_hexadecimal(PatternCursor& cursor, int min_digits, int max_digits) {
  std::uint64_t value = 0;
  int digits = 0;
  for (; digits < max_digits && !cursor.is_done(); ++digits) {
    const auto c = static_cast<unsigned char>(cursor.rest().front());
    const bool letter = lower_letter(c) >= 'a' && lower_letter(c) <= 'f';
    if (!is_digit(c) && !letter) break;
    value = value * 16 + static_cast<std::uint64_t>(letter ? lower_letter(c) - 'a' + 10 : c - '0');
    cursor.skip(1);
  }
  if (digits < min_digits || value > CodeSet::kLast || (value >= 0xD800 && value < 0xE000))
    cursor.throw_bad("a code point that does not exist", "");
  return static_cast<char32_t>(value);
}

// Returns the text up to `end`, and does not move the cursor.
std::string_view read_name(PatternCursor& cursor, std::string_view end, const char* problem,
                           const char* expected) {
  const std::size_t length = cursor.rest().find(end);
  if (length == std::string_view::npos) cursor.throw_bad(problem, expected);
  return cursor.rest().substr(0, length);
}

CodeSet read_property(PatternCursor& cursor, bool is_negated, bool ignores_case) {
  if (!cursor.accept("{")) cursor.throw_bad("\\p without braces", "\\p{...}");
  if (cursor.accept("^")) is_negated = !is_negated;
  const std::string_view name = read_name(cursor, "}", "a property without its end", "}");
  const auto set = property_set(name);
  if (!set)
    cursor.throw_bad(str("the property \"", utf8_prefix(name, 40), "\""),
                     "a general category or one of the scripts that hasten knows");
  if (ignores_case && (name == "Lu" || name == "Ll" || name == "Lt"))
    cursor.throw_bad("a letter case in (?i)", "");
  cursor.skip(name.size() + 1);
  return is_negated ? set->complement() : *set;
}

// Reads the items of a class.
class ClassReader {
 public:
  ClassReader(PatternCursor& cursor, bool ignores_case)
      : cursor_(cursor), ignores_case_(ignores_case) {}

  CodeSet read() {
    cursor_.enter("classes");
    const bool is_negated = cursor_.accept("^");
    CodeSet current, all = CodeSet::of(0, CodeSet::kLast);
    bool is_empty = true;
    for (; !cursor_.accept("]"); is_empty = false) {
      if (cursor_.is_done()) cursor_.throw_bad("a [ without its ]", "");
      if (cursor_.accept("&&")) {
        all = all.intersect(current);
        current = {};
      } else {
        current = current.unite(read_item());
      }
    }
    if (is_empty) cursor_.throw_bad("an empty class", "");
    cursor_.leave();
    all = all.intersect(current);
    if (ignores_case_) all = both_cases(all);
    return is_negated ? all.complement() : all;
  }

 private:
  CodeSet read_item() {
    if (cursor_.next_is("[:")) return read_posix_class();
    if (cursor_.accept("[")) return read();
    if (!cursor_.accept("\\")) return read_range(cursor_.read_character());
    if (auto set = read_set_escape(cursor_, ignores_case_)) return *std::move(set);
    return read_range(cursor_.accept("b") ? U'\b' : read_character_escape(cursor_));
  }

  CodeSet read_posix_class() {
    cursor_.skip(2);
    const bool is_negated = cursor_.accept("^");
    const std::string_view name = read_name(cursor_, ":]", "[: without its :]", "");
    const auto set = property_set(name);
    if (!set || name.size() < 4)
      cursor_.throw_bad(str("the class \"", utf8_prefix(name, 40), "\""),
                        "digit, space, word, xdigit or ascii");
    cursor_.skip(name.size() + 2);
    return is_negated ? set->complement() : *set;
  }

  // Reads the rest of a range that begins with `first`, or only that character.
  CodeSet read_range(char32_t first) {
    check_case(first);
    if (!cursor_.next_is("-") || cursor_.next_is("-]") || cursor_.next_is("-["))
      return CodeSet::of(first);
    cursor_.skip(1);
    if (!cursor_.accept("\\")) return range(first, cursor_.read_character());
    if (const auto set = read_set_escape(cursor_, ignores_case_))
      return set->unite(CodeSet({{first, first}, {'-', '-'}}));
    return range(first, read_character_escape(cursor_));
  }

  CodeSet range(char32_t first, char32_t last) const {
    if (last < first) cursor_.throw_bad("a range from a larger to a smaller code point", "");
    check_case(last);
    return CodeSet::of(first, last);
  }

  void check_case(char32_t c) const {
    if (ignores_case_ && c >= 0x80) cursor_.throw_bad("a letter beyond ASCII in (?i)", "ASCII");
  }

  PatternCursor& cursor_;
  bool ignores_case_;
};

}  // namespace

CodeSet read_class(PatternCursor& cursor, bool ignores_case) {
  return ClassReader(cursor, ignores_case).read();
}

std::optional<CodeSet> read_set_escape(PatternCursor& cursor, bool ignores_case) {
  if (cursor.is_done()) cursor.throw_bad("a \\ at its end", "");
  const char kind = cursor.rest().front();
  const bool is_negated = kind < 'a';
  CodeSet set;
  switch (lower_letter(static_cast<unsigned char>(kind))) {
    case 's':
      set = regex_white_set();
      break;
    case 'd':
      set = regex_digit_set();
      break;
    case 'w':
      set = regex_word_set();
      break;
    case 'h':
      set = *property_set("xdigit");
      break;
    case 'p':
      cursor.skip(1);
      return read_property(cursor, is_negated, ignores_case);
    default:
      return std::nullopt;
  }
  cursor.skip(1);
  return is_negated ? set.complement() : set;
}

char32_t read_character_escape(PatternCursor& cursor) {
  const char32_t c = cursor.read_character();
  switch (c) {
    case 't':
      return '\t';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case 'a':
      return '\a';
    case 'e':
      return 0x1B;
    case 'u':
      return read_hexadecimal(cursor, 4, 4);
    case 'x': {
      if (!cursor.accept("{")) return read_hexadecimal(cursor, 1, 2);
      const char32_t value = read_hexadecimal(cursor, 1, 8);
      if (!cursor.accept("}")) cursor.throw_bad("a code point without its end", "}");
      return value;
    }
    default:
      break;
  }
  if (is_letter(c) || is_digit(c)) {
    cursor.go_back(1);
    cursor.throw_bad(str("\\", static_cast<char>(c)), "an escape that hasten translates");
  }
  return c;
}

CodeSet both_cases(const CodeSet& set) {
  std::vector<CodeSet::Range> more;
  for (char32_t c = 'a'; c <= 'z'; ++c) {
    if (!set.contains(c) && !set.contains(c - 32)) continue;
    more.insert(more.end(), {{c, c}, {c - 32, c - 32}});
    if (c == 'k') more.emplace_back(0x212A, 0x212A);  // the sign for kelvin
    if (c == 's') more.emplace_back(0x17F, 0x17F);    // the long s
  }
  return set.unite(CodeSet(std::move(more)));
}

}  // namespace hasten::tokenizers
