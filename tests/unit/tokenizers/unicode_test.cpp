#include "tokenizers/unicode.h"

#include <doctest/doctest.h>

namespace tokenizers_unicode_test {

using namespace hasten::tokenizers;

namespace {

std::u32string decomposed(char32_t c) {
  std::u32string out;
  Unicode::get().decompose(c, out);
  return out;
}
std::u32string lowered(char32_t c) {
  std::u32string out;
  Unicode::get().lower(c, out);
  return out;
}

}  // namespace

TEST_CASE("letters are decomposed completely") {
  CHECK(decomposed(U'a') == U"a");
  CHECK(decomposed(0xE9) == U"e\u0301");
  CHECK(decomposed(0x1E69) == U"s\u0323\u0307");       // a pair that contains a pair
  CHECK(decomposed(0x212B) == U"A\u030a");             // an alias of a pair
  CHECK(decomposed(0x1FBE) == U"\u03b9");              // an alias of a letter
  CHECK(decomposed(0xF900) == U"\u8c48");              // one of a run of aliases
  CHECK(decomposed(0xAC00) == U"\u1100\u1161");        // a syllable of two letters
  CHECK(decomposed(0xD7A3) == U"\u1112\u1175\u11c2");  // a syllable of three letters
}

TEST_CASE("characters newer than Hugging Face's tables stay unchanged, as in Hugging Face") {
  CHECK(decomposed(0x11938) == U"\U00011938");            // decomposes since Unicode 13
  CHECK_FALSE(Unicode::get().is(0x0898, Unicode::mark));  // a mark since Unicode 14
  CHECK(Unicode::get().is(0x0301, Unicode::mark));
  CHECK_FALSE(Unicode::get().is(0x0378, Unicode::dropped));  // unassigned
  CHECK(Unicode::get().is(0xE000, Unicode::dropped));        // private use
  CHECK(Unicode::get().is(0x200D, Unicode::dropped));        // joins emoji
}

TEST_CASE("lower case is one character, except two for the capital i with a dot") {
  CHECK(lowered(U'A') == U"a");
  CHECK(lowered(U'a') == U"a");
  CHECK(lowered(0x101) == U"\u0101");  // between two capitals of a run with steps of two
  CHECK(lowered(0x100) == U"\u0101");
  CHECK(lowered(0x130) == U"i\u0307");
  CHECK(lowered(0x3A3) == U"\u03c3");  // never the final form
  CHECK(lowered(0x10400) == U"\U00010428");
}

TEST_CASE("marks are ordered by their classes") {
  const Unicode& unicode = Unicode::get();
  CHECK(unicode.combining_class(U'a') == 0);
  CHECK(unicode.combining_class(0x34F) == 0);  // a mark without a class
  CHECK(unicode.combining_class(0x323) == 220);
  CHECK(unicode.combining_class(0x301) == 230);
  CHECK(unicode.combining_class(0x345) == 240);
}

}  // namespace tokenizers_unicode_test
