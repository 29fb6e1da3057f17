#include "base/utf8.h"

#include <doctest/doctest.h>

namespace base_utf8_test {

using namespace hasten;

TEST_CASE("utf8: every code point is decoded as it was encoded, forwards and backwards") {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(c, text);
    const bool same = is_utf8(text) && decode_utf8(text.data()).value == c &&
                      decode_utf8(text.data()).size == text.size() &&
                      decode_utf8_before(text.data() + text.size()).value == c;
    if (!same) FAIL("U+" << static_cast<std::uint32_t>(c));
  }
}

TEST_CASE("utf8: each incomplete sequence and each stray byte becomes one U+FFFD") {
  const std::string bad = "\xEF\xBF\xBD";
  CHECK(repair_utf8("a\x80z") == "a" + bad + "z");                  // has no start byte
  CHECK(repair_utf8("\xC0\xAF") == bad + bad);                      // overlong
  CHECK(repair_utf8("\xE0\x80\xAF") == bad + bad + bad);            // overlong
  CHECK(repair_utf8("\xED\xA0\x80") == bad + bad + bad);            // surrogate
  CHECK(repair_utf8("\xF4\x90\x80\x80") == bad + bad + bad + bad);  // above U+10FFFF
  CHECK(repair_utf8("\xF0\x9F\x98") == bad);                        // ends too early
  CHECK(repair_utf8("\xF0\x9F\x98z") == bad + "z");
  CHECK(repair_utf8("\xE2\x82\xE2\x82\xAC") == bad + "\u20ac");
  CHECK(repair_utf8("\xFF\xFE") == bad + bad);
  CHECK(repair_utf8("caf\u00e9 \u4e2d \U0001f600") == "caf\u00e9 \u4e2d \U0001f600");
}

TEST_CASE("utf8: invalid bytes are found at any position") {
  for (std::size_t length = 0; length < 40; ++length) {
    std::string text(length, 'x');
    CHECK(is_utf8(text));
    CHECK(ascii_prefix(text) == length);
    for (std::size_t at = 0; at < length; ++at) {
      std::string broken = text;
      broken[at] = '\xFF';
      CHECK_FALSE(is_utf8(broken));
      CHECK(ascii_prefix(broken) == at);
    }
  }
}

TEST_CASE("utf8: code points are counted, not bytes") {
  CHECK(code_point_count("") == 0);
  CHECK(code_point_count("a\u00e9\u4e2d\U0001f600") == 4);
}

}  // namespace base_utf8_test
