#include <doctest/doctest.h>

#include <algorithm>
#include <thread>

#include "hasten/base/error.h"
#include "small_tokenizer.h"
#include "unit/thread_shortage.h"

namespace tokenizers_encode_test {

using namespace hasten;
using small::json;
using small::tokenizer;
using small::tokens;

namespace {

using Ids = std::vector<std::int32_t>;
using Offsets = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

template <class ErrorType, class Call>
std::string code_of(Call&& call) {
  try {
    call();
  } catch (const ErrorType& error) {
    return error.code();
  }
  return "nothing thrown";
}

}  // namespace

TEST_CASE("a text is wrapped in [CLS] and [SEP]") {
  const Encoding row = tokenizer().encode("Hello, playing WORLD!");
  CHECK(row.input_ids == Ids{2, 5, 13, 7, 8, 6, 14, 3});
  CHECK(row.token_type_ids == Ids(8, 0));
  CHECK(row.attention_mask == Ids(8, 1));
  CHECK(row.special_tokens_mask == Ids{1, 0, 0, 0, 0, 0, 0, 1});
  CHECK(row.offsets.empty());
  CHECK(tokenizer().encode("").input_ids == Ids{2, 3});
  CHECK(tokenizer().encode("hello", {.add_special_tokens = false}).input_ids == Ids{5});
}

TEST_CASE("a second text is of type 1, special tokens or not") {
  const Encoding row = tokenizer().encode("a", "hello b");
  CHECK(row.input_ids == Ids{2, 10, 3, 5, 11, 3});
  CHECK(row.token_type_ids == Ids{0, 0, 0, 1, 1, 1});
  const Encoding bare = tokenizer().encode("a", "hello b", {.add_special_tokens = false});
  CHECK(bare.input_ids == Ids{10, 5, 11});
  CHECK(bare.token_type_ids == Ids{0, 1, 1});
}

TEST_CASE("offsets count characters of the original text, and words are counted") {
  const Encoding row = tokenizer().encode("  CAFE\u0301 \u4e2dplayed [MASK]zz", {.offsets = true});
  CHECK(row.input_ids == Ids{2, 16, 15, 7, 9, 4, 1, 3});
  CHECK(row.offsets ==
        Offsets{{0, 0}, {2, 6}, {8, 9}, {9, 13}, {13, 15}, {16, 22}, {22, 24}, {0, 0}});
  CHECK(row.word_ids == Ids{-1, 0, 1, 2, 2, 3, 4, -1});
  const Encoding pair = tokenizer().encode("a b", "b", {.offsets = true});
  CHECK(pair.offsets == Offsets{{0, 0}, {0, 1}, {2, 3}, {0, 0}, {0, 1}, {0, 0}});
  CHECK(pair.word_ids == Ids{-1, 0, 1, -1, 0, -1});
}

TEST_CASE("requesting offsets changes nothing else") {
  for (const char* text :
       {"", "hello \u302e\U0001d165 b", "[MASK][MASK] a \xff b", "\u00e9\ud55c \u4e2d"}) {
    const Encoding with_offsets = tokenizer().encode(text, {.offsets = true});
    CHECK(with_offsets.input_ids == tokenizer().encode(text).input_ids);
    CHECK(with_offsets.offsets.size() == with_offsets.size());
    CHECK(with_offsets.word_ids.size() == with_offsets.size());
  }
}

TEST_CASE("special tokens are found in the text only with the same case") {
  CHECK(tokens(tokenizer(), "a[MASK]b [SEP]") == "a [MASK] b [SEP]");
  CHECK(tokenizer().encode("[CLS]").special_tokens_mask == Ids{1, 0, 1});
  CHECK(tokens(tokenizer(), "[mask]") == "[UNK] [UNK] [UNK]");
}

TEST_CASE("invalid bytes are one dropped character each, and count in offsets") {
  CHECK(tokens(tokenizer(), "he\xFFllo \xF0\x9F") == "hello");
  CHECK(tokenizer()
            .encode("\xC0\xAF"
                    "a",
                    {.offsets = true})
            .offsets[1] == std::pair<std::uint32_t, std::uint32_t>(2, 3));
}

TEST_CASE("a row is truncated to max_length at either end, special tokens included") {
  const auto cut = [](std::string_view text, EncodeOptions options) {
    options.truncation = Truncation::longest_first;
    return tokenizer().encode(text, options).input_ids;
  };
  CHECK(cut("a b playing", {.max_length = 4}) == Ids{2, 10, 11, 3});
  CHECK(cut("a b playing", {.max_length = 5}) == Ids{2, 10, 11, 7, 3});
  CHECK(cut("a b playing", {.max_length = 4, .truncation_side = Side::left}) == Ids{2, 7, 8, 3});
  CHECK(cut("a b playing", {.max_length = 2}) == Ids{2, 3});
  CHECK(cut("a b", {.max_length = 9}) == Ids{2, 10, 11, 3});
  CHECK(cut("a b", {.add_special_tokens = false, .max_length = 1}) == Ids{10});
  CHECK(cut("a [MASK] b", {.max_length = 4}) == Ids{2, 10, 4, 3});
}

TEST_CASE("pairs are truncated with the chosen strategy") {
  const auto cut = [](Truncation truncation, std::int64_t length) {
    return tokenizer()
        .encode("a a a a", "b b b", {.truncation = truncation, .max_length = length})
        .input_ids;
  };
  CHECK(cut(Truncation::longest_first, 8) == Ids{2, 10, 10, 10, 3, 11, 11, 3});
  CHECK(cut(Truncation::only_first, 8) == Ids{2, 10, 10, 3, 11, 11, 11, 3});
  CHECK(cut(Truncation::only_second, 8) == Ids{2, 10, 10, 10, 10, 3, 11, 3});
  CHECK(code_of<DataError>([&] { cut(Truncation::only_second, 7); }) ==
        "tokenizers.cannot-truncate");
}

TEST_CASE("max_length without truncation truncates nothing") {
  CHECK(tokenizer().encode("a b a", {.max_length = 3}).size() == 5);
}

TEST_CASE("truncation needs a valid length") {
  const auto code_with = [](std::int64_t length,
                            Truncation truncation = Truncation::longest_first) {
    return code_of<UsageError>(
        [&] { tokenizer().encode("a", {.truncation = truncation, .max_length = length}); });
  };
  CHECK(code_with(0) == "tokenizers.bad-max-length");  // this tokenizer.json has no length
  CHECK(code_with(1) == "tokenizers.bad-max-length");  // [CLS] and [SEP] need two tokens
  CHECK(code_with(-4) == "tokenizers.bad-max-length");
  CHECK(code_with(8, Truncation::only_second) == "tokenizers.no-second-text");
}

TEST_CASE("a batch equals its rows encoded one by one, on any number of threads") {
  std::vector<std::string> texts, pairs;
  for (int i = 0; i < 101; ++i) {
    texts.push_back(std::string(static_cast<std::size_t>(i % 13), 'a') + " hello \u4e2d [MASK]");
    pairs.push_back("play" + std::string(i % 2 ? "ing" : "ed"));
  }
  for (const int threads : {1, 3, 200}) {
    const auto rows = tokenizer().encode_batch(texts, {}, threads);
    const auto paired = tokenizer().encode_batch(texts, pairs, {}, threads);
    REQUIRE(rows.size() == texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      CHECK(rows[i].input_ids == tokenizer().encode(texts[i]).input_ids);
      CHECK(paired[i].input_ids == tokenizer().encode(texts[i], pairs[i]).input_ids);
    }
  }
  CHECK(tokenizer().encode_batch(std::vector<std::string>{}).empty());
  CHECK(code_of<UsageError>([&] { tokenizer().encode_batch(texts, {}, 0); }) ==
        "tokenizers.bad-threads");
  CHECK(code_of<UsageError>([&] { tokenizer().encode_batch(texts, std::vector<std::string>{}); }) ==
        "tokenizers.unequal-batch");
}

TEST_CASE("an error in a thread of a batch reaches the caller") {
  const std::vector<std::string> texts(8, "a a a a a a"), pairs(8, "b");
  const EncodeOptions options{.truncation = Truncation::only_second, .max_length = 6};
  CHECK(code_of<DataError>([&] { tokenizer().encode_batch(texts, pairs, options, 4); }) ==
        "tokenizers.cannot-truncate");
}

TEST_CASE("words are encoded one by one, and word_ids has the word of each token") {
  const std::vector<std::string> words{"Hello,", "playing", "\u200b", "", "zz", "[MASK]", "a b"};
  const Encoding row = tokenizer().encode_words(words);
  CHECK(row.input_ids == Ids{2, 5, 13, 7, 8, 1, 4, 10, 11, 3});
  CHECK(row.word_ids == Ids{-1, 0, 0, 1, 1, 4, 5, 6, 6, -1});
  CHECK(row.offsets ==
        Offsets{{0, 0}, {0, 5}, {5, 6}, {0, 4}, {4, 7}, {0, 2}, {0, 6}, {0, 1}, {2, 3}, {0, 0}});
  CHECK(row.special_tokens_mask == Ids{1, 0, 0, 0, 0, 0, 0, 0, 0, 1});
  CHECK(tokenizer().encode_words({}).input_ids == Ids{2, 3});
  // A token never spans two words here, although it may in a text of the same words.
  CHECK(tokenizer().encode_words(std::vector<std::string>{"play", "ing"}).input_ids ==
        Ids{2, 7, 1, 3});
  // Truncation may cut within a word, on either side.
  const EncodeOptions cut{.truncation = Truncation::longest_first, .max_length = 5};
  CHECK(tokenizer().encode_words(words, cut).input_ids == Ids{2, 5, 13, 7, 3});
  EncodeOptions left = cut;
  left.truncation_side = Side::left;
  CHECK(tokenizer().encode_words(words, left).input_ids == Ids{2, 4, 10, 11, 3});
  CHECK(tokenizer().encode_words(words, left).word_ids == Ids{-1, 5, 6, 6, -1});
}

TEST_CASE("a batch is encoded even if the system lacks threads") {
  const std::vector<std::string> texts(9, "hello [MASK]");
  const ThreadShortage one_left(1);
  const auto rows = tokenizer().encode_batch(texts, {}, 4);
  REQUIRE(rows.size() == texts.size());
  for (const auto& row : rows) CHECK(row.input_ids == tokenizer().encode(texts[0]).input_ids);
}

TEST_CASE("one tokenizer serves many threads at once") {
  const Ids wanted = tokenizer().encode("hello \u4e2d playing \u302e\U0001d165").input_ids;
  std::vector<int> wrong(4, 0);
  {
    std::vector<std::jthread> threads;
    for (int& count : wrong)
      threads.emplace_back([&wanted, &count, copy = tokenizer()] {
        for (int i = 0; i < 500; ++i)
          count += copy.encode("hello \u4e2d playing \u302e\U0001d165").input_ids != wanted;
      });
  }
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("padding uses the tokenizer's padding token") {
  const TemporaryDirectory folder;
  json file = small::small_json();
  file["padding"] = {{"strategy", "BatchLongest"},
                     {"direction", "Left"},
                     {"pad_to_multiple_of", nullptr},
                     {"pad_id", 4},
                     {"pad_type_id", 0},
                     {"pad_token", "[MASK]"}};
  const BertTokenizer padding_left = small::load(folder.path(), file);
  std::vector<Encoding> rows = padding_left.encode_batch(std::vector<std::string>{"a", "a b"});
  padding_left.pad(rows);
  CHECK(rows[0].input_ids == Ids{4, 2, 10, 3});
}

}  // namespace tokenizers_encode_test
