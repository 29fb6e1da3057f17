#include "tokenizers/pipeline/pattern_syntax.h"

#include <utility>

#include "tokenizers/pipeline/character_class.h"
#include "tokenizers/pipeline/coded_pattern.h"
#include "tokenizers/pipeline/pattern_cursor.h"

namespace hasten::tokenizers {
namespace {

// Reads alternatives, groups, repetitions and literals.
class PatternReader {
 public:
  PatternReader(std::string_view regex, const std::string& where) : cursor_(regex, where) {}

  Translation run() {
    read_alternatives();
    if (!cursor_.is_done()) cursor_.throw_bad("a ) without its (", "");
    const auto translation = pattern_.translation();
    if (!translation) cursor_.throw_bad("more than 128 kinds of characters", "");
    return *translation;
  }

 private:
  // Reads up to the end of the group or of the expression.
  void read_alternatives() {
    cursor_.enter("groups");
    const bool case_before = ignores_case_;
    while (!cursor_.is_done() && !cursor_.next_is(")")) {
      if (cursor_.accept("|")) {
        pattern_.add_text("|");
        last_letter_ = 0;
      } else {
        read_atom();
      }
    }
    ignores_case_ = case_before;
    last_letter_ = 0;
    cursor_.leave();
  }

  void read_atom() {
    const std::size_t begin = pattern_.size();
    if (cursor_.next_is("(")) {
      if (!read_group()) return;
    } else if (cursor_.accept("[")) {
      pattern_.add_set(read_class(cursor_, ignores_case_));
    } else if (cursor_.accept("\\")) {
      read_escape();
    } else if (cursor_.accept(".")) {
      pattern_.add_set(CodeSet::of('\n').complement());
    } else if (cursor_.accept("^")) {
      pattern_.add_text("(?m:^)");
    } else if (cursor_.accept("$")) {
      pattern_.add_text("(?m:$)");
    } else if (cursor_.next_is("*") || cursor_.next_is("+") || cursor_.next_is("?")) {
      cursor_.throw_bad("a quantifier", "something to repeat before it");
    } else {
      add_literal(cursor_.read_character());
    }
    read_quantifiers(begin);
  }

  // Reads a group and returns true. Returns false after a comment, or after flags such as (?i) and
  // what they apply to, because neither can be repeated.
  bool read_group() {
    last_letter_ = 0;
    const bool case_before = ignores_case_;
    cursor_.skip(1);
    if (cursor_.accept("?#")) {
      while (!cursor_.is_done() && !cursor_.next_is(")")) cursor_.read_character();
      close_group();
      return false;
    }
    std::string open = "(?:";
    for (const char* kind : {"?:", "?=", "?!", "?<=", "?<!", "?>"}) {
      if (!cursor_.accept(kind)) continue;
      open = std::string("(") + kind;
      return read_rest_of_group(open, case_before);
    }
    if (cursor_.accept("?<")) {
      while (!cursor_.is_done() && !cursor_.next_is(">")) cursor_.read_character();
      if (!cursor_.accept(">")) cursor_.throw_bad("a group name without its end", ">");
    } else if (cursor_.accept("?")) {
      read_flags();
      if (cursor_.accept(")")) return read_flagged_rest();
      if (!cursor_.accept(":")) cursor_.throw_bad("an unknown kind of group", "");
    }
    return read_rest_of_group(open, case_before);
  }

  // Reads what flags without a group of their own apply to: in Ruby's syntax, a(?i)b|c is
  // a(?i:b|c).
  bool read_flagged_rest() {
    pattern_.add_text("(?:");
    read_alternatives();
    pattern_.add_text(")");
    return false;
  }

  bool read_rest_of_group(const std::string& open, bool case_before) {
    pattern_.add_text(open);
    read_alternatives();
    close_group();
    pattern_.add_text(")");
    ignores_case_ = case_before;
    return true;
  }
  void close_group() {
    if (!cursor_.accept(")")) cursor_.throw_bad("a ( without its )", "");
  }

  void read_flags() {
    bool on = true;
    for (;;) {
      if (cursor_.accept("-"))
        on = false;
      else if (cursor_.accept("i"))
        ignores_case_ = on;
      else
        return;
    }
  }

  // Reads quantifiers, which repeat the pieces from `begin` on.
  void read_quantifiers(std::size_t begin) {
    bool repeated = false;
    for (;;) {
      std::string quantifier;
      for (const char* each : {"*", "+", "?"})
        if (quantifier.empty() && cursor_.accept(each)) quantifier = each;
      const bool is_interval = quantifier.empty() && read_interval(quantifier);
      if (quantifier.empty()) return;
      last_letter_ = 0;
      if (repeated) pattern_.group_from(begin);
      repeated = true;
      if (cursor_.accept("?"))
        quantifier += "?";
      else if (!is_interval &&
               cursor_.accept("+"))  // after {n,m}, + repeats the whole in Ruby's syntax
        quantifier += "+";
      pattern_.add_text(quantifier);
    }
  }

  // Reads {n}, {n,}, {,m} or {n,m}. Other braces are characters.
  bool read_interval(std::string& out) {
    if (!cursor_.next_is("{")) return false;
    const std::string_view rest = cursor_.rest();
    std::size_t at = 1;
    const auto number = [&] {
      std::string digits;
      while (at < rest.size() && is_digit(static_cast<unsigned char>(rest[at])))
        digits += rest[at++];
      return digits;
    };
    const std::string low = number();
    const bool comma = at < rest.size() && rest[at] == ',';
    if (comma) ++at;
    const std::string high = comma ? number() : low;
    if (at >= rest.size() || rest[at] != '}' || (low.empty() && high.empty())) return false;
    cursor_.skip(at + 1);
    if (low.size() > 4 || high.size() > 4)
      cursor_.throw_bad("a repetition of " + low + high, "at most 9999");
    if (!comma && cursor_.next_is("?")) cursor_.throw_bad("{n}?", "{n} or {n,n}?");
    out = "{" + (low.empty() ? "0" : low) + (comma ? "," + high : "") + "}";
    return true;
  }

  void add_literal(char32_t c) {
    if (ignores_case_ && c >= 0x80) cursor_.throw_bad("a letter beyond ASCII in (?i)", "ASCII");
    if (ignores_case_ && is_letter(c)) {
      check_folding(lower_letter(c));
      return pattern_.add_set(both_cases(CodeSet::of(c)));
    }
    last_letter_ = 0;
    if (c >= 0x80) return pattern_.add_set(CodeSet::of(c));
    pattern_.add_text(escaped_byte(static_cast<unsigned char>(c)));
  }

  // If case is ignored, Oniguruma lets two letters match one character, such as ss and the German
  // sharp s.
  void check_folding(char letter) {
    for (const std::string_view pair : {"ss", "st", "ff", "fi", "fl"})
      if (last_letter_ == pair[0] && letter == pair[1])
        cursor_.throw_bad(str("\"", pair, "\" in (?i)"),
                          "letters that match no single character together");
    last_letter_ = letter;
  }

  void read_escape() {
    if (cursor_.accept("b") || cursor_.accept("B"))
      return add_word_boundary(cursor_.last_byte() == 'b');
    if (cursor_.accept("A") || cursor_.accept("z") || cursor_.accept("Z")) {
      pattern_.add_text(std::string("\\") + cursor_.last_byte());
      return;
    }
    if (auto set = read_set_escape(cursor_, ignores_case_)) {
      last_letter_ = 0;
      return pattern_.add_set(*std::move(set));
    }
    add_literal(read_character_escape(cursor_));
  }

  void add_word_boundary(bool is_boundary) {
    const auto look = [this](const char* open) {
      pattern_.add_text(open);
      pattern_.add_set(regex_word_set());
      pattern_.add_text(")");
    };
    pattern_.add_text("(?:");
    look("(?<=");
    look(is_boundary ? "(?!" : "(?=");
    pattern_.add_text("|");
    look("(?<!");
    look(is_boundary ? "(?=" : "(?!");
    pattern_.add_text(")");
  }

  PatternCursor cursor_;
  CodedPattern pattern_;
  bool ignores_case_ = false;
  char last_letter_ = 0;  // the letter before this place in a part that ignores case
};

}  // namespace

Translation translate_pattern(std::string_view regex, const std::string& where) {
  return PatternReader(regex, where).run();
}

}  // namespace hasten::tokenizers
