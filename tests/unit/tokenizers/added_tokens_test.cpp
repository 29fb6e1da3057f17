#include "tokenizers/added_tokens.h"

#include <doctest/doctest.h>

#include "hasten/base/error.h"

namespace tokenizers_added_tokens_test {

using namespace hasten;
using namespace hasten::tokenizers;

namespace {

using Spans = std::vector<std::pair<std::size_t, std::size_t>>;

Spans raw(const std::vector<AddedToken>& tokens, std::string_view text) {
  const AddedTokens added(tokens, Normalizer::get({}));
  std::vector<AddedMatch> matches;
  added.find_raw(text, matches);
  Spans out;
  for (const AddedMatch& match : matches) out.emplace_back(match.begin, match.end);
  return out;
}

}  // namespace

TEST_CASE("the leftmost token wins, then the longest") {
  const std::vector<AddedToken> tokens{{.content = "ab"}, {.content = "abc"}, {.content = "bcd"}};
  CHECK(raw(tokens, "xabcd") == Spans{{1, 4}});
  CHECK(raw(tokens, "xabxbcd") == Spans{{1, 3}, {4, 7}});
  CHECK(raw(tokens, "a b").empty());
  CHECK(raw({}, "a b").empty());
}

TEST_CASE("single_word refuses tokens that touch letters, digits, marks or joiners") {
  const std::vector<AddedToken> tokens{{.content = "<x>", .single_word = true}};
  CHECK(raw(tokens, "<x>") == Spans{{0, 3}});
  CHECK(raw(tokens, " <x>!") == Spans{{1, 4}});
  CHECK(raw(tokens, "a<x>").empty());
  CHECK(raw(tokens, "<x>9").empty());
  CHECK(raw(tokens, "<x>_").empty());
  CHECK(raw(tokens, "<x>\u0301").empty());
  CHECK(raw(tokens, "\u200d<x>").empty());
  CHECK(raw(tokens, "\u4e2d<x> <x>") == Spans{{7, 10}});
}

TEST_CASE("lstrip and rstrip remove white space, except white space of another token") {
  CHECK(raw({{.content = "<x>", .lstrip = true}}, "a \u00a0\t<x> b") == Spans{{1, 8}});
  CHECK(raw({{.content = "<x>", .rstrip = true}}, "a <x> \u3000b") == Spans{{2, 9}});
  CHECK(raw({{.content = "<x>", .lstrip = true, .rstrip = true}}, "<x>  <x>  ") ==
        Spans{{0, 5}, {5, 10}});
}

TEST_CASE("normalized tokens are found by their normalized form") {
  const AddedTokens added({{.id = 9, .content = "Caf\u00e9", .normalized = true}},
                          Normalizer::get({}));
  CHECK_FALSE(added.has_raw());
  REQUIRE(added.has_normalized());
  std::vector<AddedMatch> matches;
  added.find_normalized("a cafe", matches);
  REQUIRE(matches.size() == 1);
  CHECK(matches[0].id == 9);
  CHECK(added.decoded_text(*added.find_by_id(9)) == "cafe");
  CHECK(added.find_by_content("Caf\u00e9") == added.find_by_id(9));
  CHECK(added.find_by_content("cafe") == nullptr);
  CHECK(added.find_by_id(8) == nullptr);
}

TEST_CASE("tokens that are equal or empty after normalization are refused") {
  const Normalizer& normalizer = Normalizer::get({});
  CHECK_THROWS_AS(
      AddedTokens({{.content = "Ab", .normalized = true}, {.content = "aB", .normalized = true}},
                  normalizer),
      DataError);
  CHECK_NOTHROW(
      AddedTokens({{.content = "Ab", .normalized = true}, {.content = "ab"}}, normalizer));
  CHECK_THROWS_AS(AddedTokens({{.content = "\u200d", .normalized = true}}, normalizer), DataError);
  CHECK_NOTHROW(AddedTokens({{.content = "\u200d"}}, normalizer));
}

}  // namespace tokenizers_added_tokens_test
