#include "tokenizers/words.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

namespace tokenizers_words_test {

using hasten::tokenizers::for_each_word;

namespace {

using Words = std::vector<std::pair<std::string, std::size_t>>;

Words words(std::string_view text, std::size_t most = 100) {
  Words out;
  for_each_word(text, [&](std::string_view word, std::size_t at) {
    out.emplace_back(word, at);
    return out.size() < most;
  });
  return out;
}

}  // namespace

TEST_CASE("white space separates words, and each punctuation character is a word") {
  CHECK(words("").empty());
  CHECK(words(" \t\u00a0").empty());
  CHECK(words("a b") == Words{{"a", 0}, {"b", 2}});
  CHECK(words(" it's!!") == Words{{"it", 1}, {"'", 3}, {"s", 4}, {"!", 5}, {"!", 6}});
  CHECK(words("x\u3002\u00bfy") == Words{{"x", 0}, {"\u3002", 1}, {"\u00bf", 4}, {"y", 6}});
}

TEST_CASE("ASCII symbols count as punctuation, other symbols do not") {
  CHECK(words("a$b") == Words{{"a", 0}, {"$", 1}, {"b", 2}});
  CHECK(words("a^`|~+<=>b").size() == 10);
  CHECK(words("a\u20acb") == Words{{"a\u20acb", 0}});
}

TEST_CASE("for_each_word stops when the callback returns false") {
  CHECK(words("a b c", 2) == Words{{"a", 0}, {"b", 2}});
  CHECK(words("a.b", 1) == Words{{"a", 0}});
  CHECK(words("..b", 1) == Words{{".", 0}});
}

}  // namespace tokenizers_words_test
