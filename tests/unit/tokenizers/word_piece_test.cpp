#include "tokenizers/word_piece.h"

#include <doctest/doctest.h>

#include "hasten/base/error.h"

namespace tokenizers_word_piece_test {

using namespace hasten::tokenizers;

namespace {

using Ids = std::vector<std::int32_t>;

Ids split(const WordPiece& pieces, std::string_view word) {
  Ids ids;
  pieces.split(word, ids, nullptr);
  return ids;
}

}  // namespace

TEST_CASE("a word becomes its longest prefix, then the longest continuations") {
  const WordPiece pieces({"[UNK]", "un", "una", "##aff", "##able", "##ff", "u", "##n", "able"}, {});
  CHECK(split(pieces, "unaffable") == Ids{2, 5, 4});  // "una" is longer than "un"
  CHECK(split(pieces, "able") == Ids{8});
  CHECK(split(pieces, "unable") == Ids{0});  // "una" leaves "ble", and there is no backtracking
  CHECK(split(pieces, "x") == Ids{0});
  CHECK(split(pieces, "unx") == Ids{0});
}

TEST_CASE("a word with an unknown part is one unknown token") {
  const WordPiece pieces({"a", "##b", "[UNK]"}, {});
  Ids ids{0};
  std::vector<std::uint32_t> ends{1};
  pieces.split("abbx", ids, &ends);
  CHECK(ids == Ids{0, 2});
  CHECK(ends == std::vector<std::uint32_t>{1, 4});
  pieces.split("abb", ids, &ends);
  CHECK(ids == Ids{0, 2, 0, 1, 1});
  CHECK(ends == std::vector<std::uint32_t>{1, 4, 1, 2, 3});
}

TEST_CASE("the length of words is measured in characters") {
  const WordPiece pieces({"[UNK]", "\u00e9", "##\u00e9", "##e"}, {.max_input_chars_per_word = 3});
  CHECK(split(pieces, "\u00e9\u00e9\u00e9") == Ids{1, 2, 2});
  CHECK(split(pieces, "\u00e9\u00e9\u00e9e") == Ids{0});
  CHECK(split(WordPiece({"[UNK]", "a"}, {.max_input_chars_per_word = 0}), "a") == Ids{0});
}

TEST_CASE("the prefix of continuations may differ or be empty") {
  CHECK(split(WordPiece({"[UNK]", "a", "@b"}, {.continuing_subword_prefix = "@"}), "abb") ==
        Ids{1, 2, 2});
  CHECK(split(WordPiece({"[UNK]", "a", "b"}, {.continuing_subword_prefix = ""}), "abba") ==
        Ids{1, 2, 2, 1});
  CHECK(split(WordPiece({"[UNK]", "a", "b"}, {.continuing_subword_prefix = "~"}), "ab") == Ids{0});
  CHECK(split(WordPiece({"[UNK]", "a", "##"}, {}), "aa") ==
        Ids{0});  // the prefix alone is not a continuation
}

TEST_CASE("an empty token is never used") {
  CHECK(split(WordPiece({"[UNK]", "", "a"}, {}), "aa") == Ids{0});
}

TEST_CASE("a vocabulary without its unknown token is refused") {
  try {
    WordPiece({"a"}, {});
    FAIL("not refused");
  } catch (const hasten::DataError& error) {
    CHECK(error.code() == "tokenizers.missing-token");
  }
}

}  // namespace tokenizers_word_piece_test
