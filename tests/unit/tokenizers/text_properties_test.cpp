#include "tokenizers/text_properties.h"

#include <doctest/doctest.h>

#include "base/utf8.h"
#include "tokenizers/code_sets.h"
#include "tokenizers/pipeline/charsmap.h"

namespace tokenizers_text_properties_test {

using namespace hasten;
using namespace hasten::tokenizers;

namespace {

std::string form(Form form, std::string_view text) {
  std::vector<FormCharacter> characters;
  TextProperties::get().convert(form, text, characters);
  std::string out;
  for (const FormCharacter& c : characters) append_utf8(c.value, out);
  return out;
}

std::vector<std::size_t> graphemes(std::string_view text) {
  std::vector<std::size_t> ends;
  for (std::size_t at = 0; at < text.size();) ends.push_back(at = grapheme_end(text, at));
  return ends;
}

using Ends = std::vector<std::size_t>;

}  // namespace

TEST_CASE("texts are composed and decomposed") {
  CHECK(form(Form::nfc, "e\u0301") == "\u00e9");
  CHECK(form(Form::nfd, "\u00e9") == "e\u0301");
  CHECK(form(Form::nfkc, "\ufb01\u2460\uff21") == "fi1A");
  CHECK(form(Form::nfkd, "\u1e9b\u0323") == "s\u0323\u0307");
  CHECK(form(Form::nfc, "\u1112\u1161\u11ab") == "\ud55c");
  CHECK(form(Form::nfc, "\u0958") == "\u0915\u093c");  // excluded from composition
  CHECK(form(Form::nfc, "a\u0323\u0301") == "\u1ea1\u0301");
  CHECK(form(Form::nfc, "\u212b") == "\u00c5");
}

TEST_CASE("a text that may change is not taken for normalized") {
  const TextProperties& properties = TextProperties::get();
  for (const char* text : {"e\u0301", "\u212b", "\u1100\u1161", "\u0958", "a\u0323"})
    CHECK_FALSE(properties.is_normalized(Form::nfc, text));
  for (const char* text : {"", "abc", "\u00e9\u4e2d", "\ud55c"})
    CHECK(properties.is_normalized(Form::nfc, text));
  CHECK_FALSE(properties.is_normalized(Form::nfkc, "\ufb01"));
  CHECK_FALSE(properties.is_normalized(Form::nfd, "\ud55c"));
}

TEST_CASE("is_normalized agrees with convert on every code point and on pairs with marks") {
  for (const Form each : {Form::nfc, Form::nfd, Form::nfkc, Form::nfkd}) {
    std::size_t wrong = 0;
    for (char32_t c = 0; c < 0x110000; c += c < 0x3000 || (c > 0xA000 && c < 0x12000) ? 1 : 7) {
      if (c >= 0xD800 && c < 0xE000) continue;
      std::string text = "a";
      append_utf8(c, text);
      if (TextProperties::get().is_normalized(each, text) && form(each, text) != text) ++wrong;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("texts are split into graphemes") {
  CHECK(graphemes("ab") == Ends{1, 2});
  CHECK(graphemes("e\u0301x") == Ends{3, 4});
  CHECK(graphemes("\r\n\n") == Ends{2, 3});
  CHECK(graphemes("\u1112\u1161\u11ab\uac00") == Ends{9, 12});
  CHECK(graphemes("\u00a9\u200d\u00a9") == Ends{7});
  CHECK(graphemes("\U0001f1eb\U0001f1f7\U0001f1e9") == Ends{8, 12});
}

TEST_CASE("sets of code points have the operations of sets") {
  const CodeSet letters({{'a', 'f'}, {'d', 'k'}, {'m', 'm'}});
  CHECK(letters.ranges() == std::vector<CodeSet::Range>{{'a', 'k'}, {'m', 'm'}});
  CHECK(letters.complement().complement() == letters);
  CHECK(letters.intersect(CodeSet::of('j', 'z')).ranges() ==
        std::vector<CodeSet::Range>{{'j', 'k'}, {'m', 'm'}});
  CHECK(letters.contains('m'));
  CHECK_FALSE(letters.contains('l'));
  CHECK(property_set("Lu")->contains(U'\u00c9'));
  CHECK(property_set("l")->contains(U'\u00e9'));
  CHECK_FALSE(property_set("Lx"));
  CHECK_FALSE(property_set(""));
  CHECK(regex_white_set().contains(0x85));
  CHECK_FALSE(regex_white_set().contains(0x180E));
  CHECK(regex_word_set().contains(U'\u24b6'));
}

}  // namespace tokenizers_text_properties_test
