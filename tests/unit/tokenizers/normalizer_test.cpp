#include "tokenizers/normalizer.h"

#include <doctest/doctest.h>

#include <string>

namespace tokenizers_normalizer_test {

using namespace hasten::tokenizers;

namespace {

std::string normalized(std::string_view text, const NormalizerOptions& options = {}) {
  Normalized out;
  Normalizer::get(options).run(text, false, out);
  return std::string(out.text());
}

std::vector<std::uint32_t> origins(std::string_view text) {
  Normalized out;
  Normalizer::get({}).run(text, true, out);
  return {out.origins.data(), out.origins.data() + out.origins.size()};
}

constexpr NormalizerOptions nothing{
    .clean_text = false, .ideographs = false, .strip_accents = false, .lowercase = false};

}  // namespace

TEST_CASE("cleaning drops controls, private use and U+FFFD, and turns white space into blanks") {
  CHECK(normalized(std::string("a\0b\x01\x7f", 5)) == "ab");
  CHECK(normalized("a\tb\nc\rd") == "a b c d");
  CHECK(normalized("a\u00a0b\u2003c\u3000d\u2028e") == "a b c d e");
  CHECK(normalized("a\u000bb\u0085c") == "abc");  // white space in Unicode, controls here
  CHECK(normalized("a\u200bb\u200dc\ufeffd\u00ade\ue000f\ufffdg\U000f0000h") == "abcdefgh");
  CHECK(normalized("a\tb\u200dc", nothing) == "a\tb\u200dc");
}

TEST_CASE("ideographs become separate words, other letters of East Asia do not") {
  CHECK(normalized("a\u4e2d\u6587b") == "a \u4e2d  \u6587 b");
  CHECK(normalized("\U00020000\U0002ceaf") == " \U00020000  \U0002ceaf ");
  CHECK(normalized("\u3042\u30a2") == "\u3042\u30a2");
  CHECK(normalized("\uf900") == " \u8c48 ");  // also decomposed
  CHECK(normalized("\uf900", {.strip_accents = false}) == " \uf900 ");
  CHECK(normalized("\u4e2d", {.ideographs = false}) == "\u4e2d");
}

TEST_CASE("strip_accents removes accents, and only then letters are decomposed") {
  CHECK(normalized("\u00c9t\u00e9 e\u0301 \u1ed9 \u1e69") == "ete e o s");
  CHECK(normalized("\u00c9t\u00e9", {.strip_accents = false}) == "\u00e9t\u00e9");
  CHECK(normalized("\u00c9t\u00e9", {.lowercase = false}) == "Ete");
  CHECK(normalized("\u00f8\u0142\u0111") == "\u00f8\u0142\u0111");  // strokes are not accents
  CHECK(normalized("\ud55c") == "\u1112\u1161\u11ab");
  CHECK(normalized("\ud55c", {.strip_accents = false}) == "\ud55c");
  CHECK(normalized("\u2260\u037e") == "=;");
}

TEST_CASE("lower case applies to each letter") {
  CHECK(normalized("STRASSE \u1e9e \u03a3\u03a3 \u01c4") == "strasse \u00df \u03c3\u03c3 \u01c6");
  CHECK(normalized("\u0130") == "i");
  CHECK(normalized("\u0130", {.strip_accents = false}) == "i\u0307");
  CHECK(normalized("\u023a", {.strip_accents = false}) == "\u2c65");  // longer than before
}

TEST_CASE("marks that stay are sorted with all marks around them") {
  // U+302E (combining class 224) and U+1D165 (216) stay, and U+0301 (230) is removed.
  CHECK(normalized("a\u302e\U0001d165") == "a\U0001d165\u302e");
  CHECK(normalized("a\u302e\u0301\U0001d165") == "a\U0001d165\u302e");
  CHECK(normalized("a\u302e\u034f\U0001d165") == "a\u302e\U0001d165");  // U+034F separates them
  CHECK(normalized("a\u302e\U0001d165", nothing) == "a\u302e\U0001d165");
}

TEST_CASE("each byte has the index of its original character") {
  CHECK(origins("ab") == std::vector<std::uint32_t>{0, 1});
  CHECK(origins("a\u0301\u200db") == std::vector<std::uint32_t>{0, 3});
  CHECK(origins("\u00e9\u4e2d") == std::vector<std::uint32_t>{0, 1, 1, 1, 1, 1});
  CHECK(origins("\ud55cb") == std::vector<std::uint32_t>{0, 0, 0, 0, 0, 0, 0, 0, 0, 1});
  CHECK(origins("\u302ea") == std::vector<std::uint32_t>{0, 0, 0, 1});
}

TEST_CASE("a text of any length and mixture is normalized") {
  std::string text, wanted;
  for (int i = 0; i < 3000; ++i) {
    text += i % 7 == 0 ? "\ud55c" : i % 3 == 0 ? "\u4e2d" : "x";
    wanted += i % 7 == 0 ? "\u1112\u1161\u11ab" : i % 3 == 0 ? " \u4e2d " : "x";
    if (i % 100 == 0) CHECK(normalized(text) == wanted);
  }
  CHECK(normalized(text) == wanted);
}

}  // namespace tokenizers_normalizer_test
