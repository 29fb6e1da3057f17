#include "pattern_syntax.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/utf8.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "tokenizers/code_sets.h"

namespace hasten::tokenizers {
namespace {

constexpr int kDeepest = 50;
constexpr std::size_t kLongest = 1 << 16;

bool is_letter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }
char lower_letter(char32_t c) { return static_cast<char>(c | 0x20); }

// A part of the result: text for PCRE2, or one character of a set.
struct Piece {
  std::string text;
  int set = -1;
};

class PatternReader {
 public:
  PatternReader(std::string_view regex, const std::string& where) : regex_(regex), where_(where) {
    if (!is_utf8(regex)) throw_bad("a byte that is not UTF-8", "");
    if (regex.size() > kLongest) throw_bad(str(regex.size(), " bytes"), "fewer");
  }

  Translation run() {
    read_alternatives();
    if (at_ < regex_.size()) throw_bad("a ) without its (", "");
    return result();
  }

 private:
  [[noreturn]] void throw_bad(const std::string& got, const std::string& expected) const {
    throw DataError("tokenizers.bad-pattern", {.what = str(where_, ": the regular expression ",
                                                           quoted(regex_), " at byte ", at_),
                                               .got = got,
                                               .expected = expected});
  }
  static std::string quoted(std::string_view text) {
    return "\"" + std::string(utf8_prefix(text, 200)) + "\"";
  }

  bool is_done() const { return at_ >= regex_.size(); }
  bool next_is(std::string_view text) const { return regex_.substr(at_).starts_with(text); }
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

  void add_text(std::string text) { pieces_.push_back({std::move(text), -1}); }
  void add_set(CodeSet set) {
    const auto found = std::find(sets_.begin(), sets_.end(), set);
    pieces_.push_back({"", static_cast<int>(found - sets_.begin())});
    if (found == sets_.end()) sets_.push_back(std::move(set));
  }

  // Reads up to the end of the group or of the expression.
  void read_alternatives() {
    if (++depth_ > kDeepest)
      throw_bad("groups that are nested too deeply", str("at most ", kDeepest));
    const bool case_before = ignores_case_;
    while (!is_done() && !next_is(")")) {
      if (accept("|")) {
        add_text("|");
        last_letter_ = 0;
      } else {
        read_atom();
      }
    }
    ignores_case_ = case_before;
    last_letter_ = 0;
    --depth_;
  }

  void read_atom() {
    const std::size_t begin = pieces_.size();
    if (next_is("(")) {
      if (!read_group()) return;
    } else if (accept("[")) {
      add_set(read_class());
    } else if (accept("\\")) {
      read_escape();
    } else if (accept(".")) {
      add_set(CodeSet::of('\n').complement());
    } else if (accept("^")) {
      add_text("(?m:^)");
    } else if (accept("$")) {
      add_text("(?m:$)");
    } else if (next_is("*") || next_is("+") || next_is("?")) {
      throw_bad("a quantifier", "something to repeat before it");
    } else {
      add_literal(read_character());
    }
    read_quantifiers(begin);
  }

  // Reads a group and returns true, or a comment, or flags such as (?i) and what they apply to, and
  // returns false: neither can be repeated.
  bool read_group() {
    last_letter_ = 0;
    const bool case_before = ignores_case_;
    at_ += 1;
    if (accept("?#")) {
      while (!is_done() && !next_is(")")) read_character();
      close_group();
      return false;
    }
    std::string open = "(?:";
    for (const char* kind : {"?:", "?=", "?!", "?<=", "?<!", "?>"}) {
      if (!accept(kind)) continue;
      open = std::string("(") + kind;
      return read_rest_of_group(open, case_before);
    }
    if (accept("?<")) {
      while (!is_done() && !next_is(">")) read_character();
      if (!accept(">")) throw_bad("a group name without its end", ">");
    } else if (accept("?")) {
      read_flags();
      if (accept(")")) return read_flagged_rest();
      if (!accept(":")) throw_bad("an unknown kind of group", "");
    }
    return read_rest_of_group(open, case_before);
  }

  // Reads what flags without a group of their own apply to: in Ruby's syntax, a(?i)b|c is a(?i:b|c).
  bool read_flagged_rest() {
    add_text("(?:");
    read_alternatives();
    add_text(")");
    return false;
  }

  bool read_rest_of_group(const std::string& open, bool case_before) {
    add_text(open);
    read_alternatives();
    close_group();
    add_text(")");
    ignores_case_ = case_before;
    return true;
  }
  void close_group() {
    if (!accept(")")) throw_bad("a ( without its )", "");
  }

  void read_flags() {
    bool on = true;
    for (;;) {
      if (accept("-"))
        on = false;
      else if (accept("i"))
        ignores_case_ = on;
      else
        return;
    }
  }

  // Repeats what the pieces from `begin` on stand for.
  void read_quantifiers(std::size_t begin) {
    bool repeated = false;
    for (;;) {
      std::string quantifier;
      for (const char* each : {"*", "+", "?"})
        if (quantifier.empty() && accept(each)) quantifier = each;
      const bool is_interval = quantifier.empty() && read_interval(quantifier);
      if (quantifier.empty()) return;
      last_letter_ = 0;
      if (repeated) wrap(begin);
      repeated = true;
      if (accept("?"))
        quantifier += "?";
      else if (!is_interval && accept("+"))  // after {n,m}, + repeats the whole in Ruby's syntax
        quantifier += "+";
      add_text(quantifier);
    }
  }

  void wrap(std::size_t begin) {
    pieces_.insert(pieces_.begin() + static_cast<std::ptrdiff_t>(begin), Piece{"(?:", -1});
    add_text(")");
  }

  // Reads {n}, {n,}, {,m} or {n,m}. Other braces are characters.
  bool read_interval(std::string& out) {
    if (!next_is("{")) return false;
    std::size_t at = at_ + 1;
    const auto number = [&] {
      std::string digits;
      while (at < regex_.size() && is_digit(static_cast<unsigned char>(regex_[at])))
        digits += regex_[at++];
      return digits;
    };
    const std::string low = number();
    const bool comma = at < regex_.size() && regex_[at] == ',';
    if (comma) ++at;
    const std::string high = comma ? number() : low;
    if (at >= regex_.size() || regex_[at] != '}' || (low.empty() && high.empty())) return false;
    at_ = at + 1;
    if (low.size() > 4 || high.size() > 4)
      throw_bad("a repetition of " + low + high, "at most 9999");
    if (!comma && next_is("?")) throw_bad("{n}?", "{n} or {n,n}?");
    out = "{" + (low.empty() ? "0" : low) + (comma ? "," + high : "") + "}";
    return true;
  }

  void add_literal(char32_t c) {
    if (ignores_case_ && c >= 0x80) throw_bad("a letter beyond ASCII in (?i)", "ASCII");
    if (ignores_case_ && is_letter(c)) {
      check_folding(lower_letter(c));
      return add_set(both_cases(CodeSet::of(c)));
    }
    last_letter_ = 0;
    if (c >= 0x80) return add_set(CodeSet::of(c));
    add_text(hexadecimal(static_cast<unsigned char>(c)));
  }

  // Oniguruma lets two letters match one character in another case: ss and the German sharp s.
  void check_folding(char letter) {
    for (const std::string_view pair : {"ss", "st", "ff", "fi", "fl"})
      if (last_letter_ == pair[0] && letter == pair[1])
        throw_bad(str("\"", pair, "\" in (?i)"), "letters that match no single character together");
    last_letter_ = letter;
  }

  static CodeSet both_cases(const CodeSet& set) {
    std::vector<CodeSet::Range> more;
    for (char32_t c = 'a'; c <= 'z'; ++c) {
      if (!set.contains(c) && !set.contains(c - 32)) continue;
      more.insert(more.end(), {{c, c}, {c - 32, c - 32}});
      if (c == 'k') more.emplace_back(0x212A, 0x212A);  // the sign for kelvin
      if (c == 's') more.emplace_back(0x17F, 0x17F);    // the long s
    }
    return set.unite(CodeSet(std::move(more)));
  }

  static std::string hexadecimal(unsigned char byte) {
    constexpr const char* digits = "0123456789ABCDEF";
    return {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
  }

  void read_escape() {
    if (accept("b") || accept("B")) return add_word_boundary(regex_[at_ - 1] == 'b');
    if (accept("A") || accept("z") || accept("Z")) {
      add_text(std::string("\\") + regex_[at_ - 1]);
      return;
    }
    CodeSet set;
    if (read_set_escape(set)) {
      last_letter_ = 0;
      return add_set(std::move(set));
    }
    add_literal(read_character_escape());
  }

  void add_word_boundary(bool is_boundary) {
    const auto look = [this](const char* open) {
      add_text(open);
      add_set(regex_word_set());
      add_text(")");
    };
    add_text("(?:");
    look("(?<=");
    look(is_boundary ? "(?!" : "(?=");
    add_text("|");
    look("(?<!");
    look(is_boundary ? "(?=" : "(?!");
    add_text(")");
  }

  // Reads what follows the backslash of \s, \p{L} and the like.
  bool read_set_escape(CodeSet& set) {
    if (is_done()) throw_bad("a \\ at its end", "");
    const char kind = regex_[at_];
    switch (kind) {
      case 's':
      case 'S':
        set = regex_white_set();
        break;
      case 'd':
      case 'D':
        set = regex_digit_set();
        break;
      case 'w':
      case 'W':
        set = regex_word_set();
        break;
      case 'h':
      case 'H':
        set = *property_set("xdigit");
        break;
      case 'p':
      case 'P':
        at_ += 1;
        set = read_property(kind == 'P');
        return true;
      default:
        return false;
    }
    at_ += 1;
    if (kind < 'a') set = set.complement();
    return true;
  }

  CodeSet read_property(bool is_negated) {
    if (!accept("{")) throw_bad("\\p without braces", "\\p{...}");
    if (accept("^")) is_negated = !is_negated;
    const std::size_t end = regex_.find('}', at_);
    if (end == std::string_view::npos) throw_bad("a property without its end", "}");
    const std::string_view name = regex_.substr(at_, end - at_);
    const auto set = property_set(name);
    if (!set)
      throw_bad(str("the property \"", utf8_prefix(name, 40), "\""),
                "a general category or one of the scripts that hasten knows");
    if (ignores_case_ && (name == "Lu" || name == "Ll" || name == "Lt"))
      throw_bad("a letter case in (?i)", "");
    at_ = end + 1;
    return is_negated ? set->complement() : *set;
  }

  char32_t read_character_escape() {
    const char32_t c = read_character();
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
        return read_hexadecimal(4, 4);
      case 'x': {
        if (!accept("{")) return read_hexadecimal(1, 2);
        const char32_t value = read_hexadecimal(1, 8);
        if (!accept("}")) throw_bad("a code point without its end", "}");
        return value;
      }
      default:
        break;
    }
    if (is_letter(c) || is_digit(c)) {
      at_ -= 1;
      throw_bad(str("\\", static_cast<char>(c)), "an escape that hasten translates");
    }
    return c;
  }

  char32_t read_hexadecimal(int least, int most) {
    std::uint64_t value = 0;
    int digits = 0;
    for (; digits < most && !is_done(); ++digits) {
      const char c = regex_[at_];
      const bool letter = lower_letter(static_cast<unsigned char>(c)) >= 'a' &&
                          lower_letter(static_cast<unsigned char>(c)) <= 'f';
      if (!is_digit(static_cast<unsigned char>(c)) && !letter) break;
      value = value * 16 +
              static_cast<std::uint64_t>(
                  letter ? lower_letter(static_cast<unsigned char>(c)) - 'a' + 10 : c - '0');
      ++at_;
    }
    if (digits < least || value > CodeSet::kLast || (value >= 0xD800 && value < 0xE000))
      throw_bad("a code point that does not exist", "");
    return static_cast<char32_t>(value);
  }

  // Reads a class after its [.
  CodeSet read_class() {
    if (++depth_ > kDeepest)
      throw_bad("classes that are nested too deeply", str("at most ", kDeepest));
    const bool is_negated = accept("^");
    CodeSet current, all = CodeSet::of(0, CodeSet::kLast);
    bool is_empty = true;
    for (; !accept("]"); is_empty = false) {
      if (is_done()) throw_bad("a [ without its ]", "");
      if (accept("&&")) {
        all = all.intersect(current);
        current = {};
      } else {
        current = current.unite(read_class_item());
      }
    }
    if (is_empty) throw_bad("an empty class", "");
    --depth_;
    all = all.intersect(current);
    if (ignores_case_) all = both_cases(all);
    return is_negated ? all.complement() : all;
  }

  CodeSet read_class_item() {
    if (next_is("[:")) return read_posix_class();
    if (accept("[")) return read_class();
    if (accept("\\")) {
      CodeSet set;
      if (read_set_escape(set)) return set;
      return read_range(next_is("b") ? (at_ += 1, U'\b') : read_character_escape());
    }
    return read_range(read_character());
  }

  CodeSet read_posix_class() {
    at_ += 2;
    const bool is_negated = accept("^");
    const std::size_t end = regex_.find(":]", at_);
    if (end == std::string_view::npos) throw_bad("[: without its :]", "");
    const std::string_view name = regex_.substr(at_, end - at_);
    const auto set = property_set(name);
    if (!set || name.size() < 4)
      throw_bad(str("the class \"", utf8_prefix(name, 40), "\""),
                "digit, space, word, xdigit or ascii");
    at_ = end + 2;
    return is_negated ? set->complement() : *set;
  }

  // Reads the rest of a range that begins with `first`, or only that character.
  CodeSet read_range(char32_t first) {
    if (ignores_case_ && first >= 0x80) throw_bad("a letter beyond ASCII in (?i)", "ASCII");
    if (!next_is("-") || next_is("-]")) return CodeSet::of(first);
    const std::size_t before = at_;
    at_ += 1;
    if (next_is("[")) {
      at_ = before;
      return CodeSet::of(first);
    }
    char32_t last = 0;
    if (accept("\\")) {
      CodeSet set;
      if (read_set_escape(set)) return set.unite(CodeSet({{first, first}, {'-', '-'}}));
      last = read_character_escape();
    } else {
      last = read_character();
    }
    if (last < first) throw_bad("a range from a larger to a smaller code point", "");
    if (ignores_case_ && last >= 0x80) throw_bad("a letter beyond ASCII in (?i)", "ASCII");
    return CodeSet::of(first, last);
  }

  // Gives each group of characters beyond ASCII that all sets treat alike a code, and writes the
  // sets as classes of codes.
  Translation result() const {
    std::map<char32_t, std::vector<std::size_t>> toggles;  // the sets that begin or end there
    toggles[0x80];
    for (std::size_t i = 0; i < sets_.size(); ++i) {
      for (const CodeSet::Range& range : sets_[i].ranges()) {
        if (range.second < 0x80) continue;
        toggles[std::max<char32_t>(range.first, 0x80)].push_back(i);
        if (range.second < CodeSet::kLast) toggles[range.second + 1].push_back(i);
      }
    }
    Translation out;
    std::vector<bool> inside(sets_.size());
    std::map<std::vector<bool>, std::uint8_t> codes;
    for (const auto& [first, changed] : toggles) {
      for (const std::size_t i : changed) inside[i] = !inside[i];
      const auto [found, is_new] =
          codes.emplace(inside, static_cast<std::uint8_t>(0x80 + codes.size()));
      if (is_new && codes.size() > 128) throw_bad("more than 128 kinds of characters", "");
      if (out.rows.empty() || out.rows.back().code != found->second)
        out.rows.push_back({first, found->second});
    }
    for (const Piece& piece : pieces_)
      out.regex +=
          piece.set < 0 ? piece.text : class_of(static_cast<std::size_t>(piece.set), codes);
    return out;
  }

  std::string class_of(std::size_t set,
                       const std::map<std::vector<bool>, std::uint8_t>& codes) const {
    std::array<bool, 256> has{};
    for (char32_t c = 0; c < 0x80; ++c) has[c] = sets_[set].contains(c);
    for (const auto& [inside, code] : codes) has[code] = inside[set];
    std::string out;
    for (int first = 0; first < 256; ++first) {
      if (!has[static_cast<std::size_t>(first)]) continue;
      int last = first;
      while (last < 255 && has[static_cast<std::size_t>(last + 1)]) ++last;
      out += hexadecimal(static_cast<unsigned char>(first));
      if (last > first) out += "-" + hexadecimal(static_cast<unsigned char>(last));
      first = last;
    }
    return out.empty() ? "(?!)" : "[" + out + "]";
  }

  std::string_view regex_;
  const std::string& where_;
  std::size_t at_ = 0;
  int depth_ = 0;
  bool ignores_case_ = false;
  char last_letter_ = 0;  // the letter before this place in a part that ignores case
  std::vector<Piece> pieces_;
  std::vector<CodeSet> sets_;
};

}  // namespace

Translation translate_pattern(std::string_view regex, const std::string& where) {
  return PatternReader(regex, where).run();
}

}  // namespace hasten::tokenizers
