#include "tokenizers/pipeline/pattern.h"

#include <doctest/doctest.h>

#include "hasten/base/error.h"

namespace tokenizers_pattern_test {

using namespace hasten;
using namespace hasten::tokenizers;

namespace {

std::vector<std::string> found(std::string_view regex, std::string_view text) {
  const Pattern pattern(regex, "test");
  Matcher matcher;
  std::vector<Match> matches;
  pattern.find_all(text, matcher, matches);
  std::vector<std::string> words;
  for (const Match& match : matches)
    words.emplace_back(text.substr(match.begin, match.end - match.begin));
  return words;
}

using Words = std::vector<std::string>;

std::string message_for(std::string_view regex) {
  try {
    const Pattern pattern(regex, "file: key");
  } catch (const DataError& error) {
    CHECK(error.code() == "tokenizers.bad-pattern");
    return error.what();
  }
  return "compiled";
}

}  // namespace

TEST_CASE("only the sets of a pattern distinguish characters beyond ASCII") {
  CHECK(found("\\p{L}+", "a\u00e9\u4e2d 1\u0663") == Words{"a\u00e9\u4e2d"});
  CHECK(found("\\p{N}+", "a1\u0663\u00bd") == Words{"1\u0663\u00bd"});
  CHECK(found("[^\\s\\p{L}\\p{N}]+", "a\u2014\u3000\U0001f600!b") ==
        Words{"\u2014", "\U0001f600!"});
  CHECK(found("\u2581|\u2582", "\u2580\u2581\u2582\u2583") == Words{"\u2581", "\u2582"});
  CHECK(found("\\x{2581}\\u2582", "\u2581\u2582") == Words{"\u2581\u2582"});
  CHECK(found("[\u4e00-\u9fa5]+", "a\u4e00\u9fa5\u9fa6") == Words{"\u4e00\u9fa5"});
  CHECK(found("\\p{Han}+", "\u3042\u4e2d\u56fd") == Words{"\u4e2d\u56fd"});
  CHECK(found("\\P{Lu}+", "aB\u00c9c") == Words{"a", "c"});
}

TEST_CASE("classes nest, intersect and have names") {
  CHECK(found("[a-z&&[^aeiou]]+", "hello") == Words{"h", "ll"});
  CHECK(found("[^(\\s|[.,])]+", "ab.c d(|") == Words{"ab", "c", "d"});
  CHECK(found("[[:digit:]-]+", "1-2x") == Words{"1-2"});
  CHECK(found("[\\]\\-]+", "a]-b") == Words{"]-"});
  CHECK(found("[a-c-]+", "abc-d") == Words{"abc-"});
}

TEST_CASE("escapes, comments, anchors and names of groups are read as in Ruby") {
  CHECK(found("\\n|\\r|\\f|\\v|\\a|\\e|\\t", "\n\r\f\v\a\x1b\tn") ==
        Words{"\n", "\r", "\f", "\v", "\a", "\x1b", "\t"});
  CHECK(found("\\d+|\\W", "a12-") == Words{"12", "-"});
  CHECK(found("\\w+", "a1_ -b") == Words{"a1_", "b"});
  CHECK(found("\\D+", "1ab2") == Words{"ab"});
  CHECK(found("\\h+", "xfF0g") == Words{"fF0"});
  CHECK(found("\\H+", "xfF0g") == Words{"x", "g"});
  CHECK(found("\\x41\\.", "A.AB") == Words{"A."});
  CHECK(found("a(?#a comment)b", "ab") == Words{"ab"});
  CHECK(found("(?<name>a)b", "ab") == Words{"ab"});
  CHECK(found("\\Aab", "abab") == Words{"ab"});
  CHECK(found("ab\\z", "abab") == Words{"ab"});
  CHECK(found("a$", "a\nba") == Words{"a", "a"});
  CHECK(found("a\\Bb", "ab") == Words{"ab"});
  CHECK(found("[a-\\x63]+", "abcd-") == Words{"abc"});
  CHECK(found("[a-\\d]+", "a-1b") == Words{"a-1"});
  CHECK(found("[a-[x]]+", "a-xb") == Words{"a-x"});
  CHECK(found("[[:^digit:]]+", "a1") == Words{"a"});
  for (const char* regex :
       {"(?<name", "(?#", "a{10000}", "[[:klingon:]]", "[[:digit:", "[\\", "\\p", "(?i:\\p{Lu})",
        "\\x{41", "[c-a]", "(?i:[\u00e9])", "(?i:[a-\u00e9])"})
    CHECK_MESSAGE(message_for(regex) != "compiled", regex);
}

TEST_CASE("(?i) matches as Oniguruma does, the long s included") {
  CHECK(found("(?i:'s|'t)", "'S'\u017f't's") == Words{"'S", "'\u017f", "'t", "'s"});
  CHECK(found("(?i)k[a-c](?-i)d", "\u212aBd KBD") == Words{"\u212aBd"});
  CHECK(message_for("(?i:ss)").find("\"ss\"") != std::string::npos);
  CHECK(message_for("(?i:\u00e9)") != "compiled");
}

TEST_CASE("flags without a group apply to the alternatives after them, as in Ruby") {
  CHECK(found("ab(?i)c|d", "abC abD D d ab") == Words{"abC", "abD"});
  CHECK(found("x|a(?i)b|c", "x aB C c aC ac") == Words{"x", "aB", "aC", "ac"});
  CHECK(found("(?:a(?i)b|c)d", "aBd aCd Cd cd acd") == Words{"aBd", "aCd", "acd"});
  CHECK(found("(?i)a(?-i)b|c", "Ab AC Ac AB c") == Words{"Ab", "Ac"});
  CHECK(found("(?-i)a|b(?i)c", "a bC") == Words{"a", "bC"});
  CHECK(found("a(?i)", "aA") == Words{"a"});
}

TEST_CASE("quantifiers have Ruby's meaning") {
  CHECK(found("a{2}+", "aaaaa") == Words{"aaaa"});  // {2} repeated, not possessive
  CHECK(found("a++a", "aaa") == Words{});           // possessive
  CHECK(found("a{,2}b", "aaab") == Words{"aab"});
  CHECK(found("a{x", "a{x") == Words{"a{x"});
  CHECK(found("a??b", "ab") == Words{"ab"});
  CHECK(message_for("a{2}?") != "compiled");
}

TEST_CASE("empty matches count unless they follow a match directly") {
  CHECK(found("x*", "axxb") == Words{"", "xx", ""});
  CHECK(found("", "\u00e9a") == Words{"", "", ""});
  CHECK(found("^", "a\nb") == Words{"", ""});
  CHECK(found("\\b", "ab \u00e9") == Words{"", "", "", ""});
}

TEST_CASE("the error for a feature that is not translated names it") {
  CHECK(message_for("(a)\\1").find("\\1") != std::string::npos);
  CHECK(message_for("\\p{Klingon}").find("Klingon") != std::string::npos);
  for (const char* regex : {"\\G", "\\K", "\\R", "\\X", "(", ")", "[", "[]", "a**b)", "*", "\\p{L",
                            "\\", "(?x:a)", "[b-a]", "\\x{110000}", "\\uD800", "(?<=a*)b"})
    CHECK_MESSAGE(message_for(regex) != "compiled", regex);
  CHECK(message_for(std::string(1000, '(')) != "compiled");
  CHECK(message_for(std::string(1000, '[')) != "compiled");
  CHECK(message_for("\xff") != "compiled");
}

TEST_CASE("a pattern that exceeds the match limit is an error") {
  const Pattern pattern("(?:a+)+b|(?:a|aa|aaa)+c", "test");
  Matcher matcher;
  std::vector<Match> matches;
  CHECK_THROWS_AS(pattern.find_all(std::string(200, 'a'), matcher, matches), DataError);
}

}  // namespace tokenizers_pattern_test
