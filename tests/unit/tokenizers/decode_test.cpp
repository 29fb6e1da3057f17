#include <doctest/doctest.h>

#include "hasten/base/error.h"
#include "small_tokenizer.h"

namespace tokenizers_decode_test {

using namespace hasten;
using small::tokenizer;

namespace {
using Ids = std::vector<std::int32_t>;
}

TEST_CASE("continuations are joined to their word, other tokens get a blank") {
  CHECK(tokenizer().decode(Ids{5, 7, 8, 6}) == "hello playing world");
  CHECK(tokenizer().decode(Ids{8, 5}) == "##ing hello");  // the first token stays unchanged
  CHECK(tokenizer().decode(Ids{}) == "");
}

TEST_CASE("special tokens are printed unless they are skipped on request") {
  const Ids ids = tokenizer().encode("Hello, world!").input_ids;
  CHECK(tokenizer().decode(ids) == "[CLS] hello, world! [SEP]");
  CHECK(tokenizer().decode(ids, {.skip_special_tokens = true}) == "hello, world!");
}

TEST_CASE("unknown ids are left out") {
  CHECK(tokenizer().decode(Ids{-100, 5, 17, 2147483647, 6}) == "hello world");
}

TEST_CASE("without a decoder tokens are joined with blanks, and cleaned only on request") {
  const TemporaryDirectory folder;
  auto file = small::small_json();
  file["decoder"] = nullptr;
  const BertTokenizer plain = small::load(folder.path(), file);
  CHECK(plain.decode(Ids{7, 8, 14}) == "play ##ing !");
  CHECK(plain.decode(Ids{7, 8, 14}, {.clean_up_tokenization_spaces = true}) == "play ##ing!");
}

TEST_CASE("tokens and ids are looked up in both directions") {
  CHECK(tokenizer().token_to_id("hello") == 5);
  CHECK(tokenizer().token_to_id("[MASK]") == 4);
  CHECK_FALSE(tokenizer().token_to_id("nothing"));
  CHECK(tokenizer().id_to_token(8) == "##ing");
  CHECK_FALSE(tokenizer().id_to_token(17));
  CHECK_FALSE(tokenizer().id_to_token(-1));
  CHECK(tokenizer().vocab_size() == 17);
  CHECK(tokenizer().pad_id() == 0);
  CHECK(tokenizer().unk_id() == 1);
  CHECK(tokenizer().cls_id() == 2);
  CHECK(tokenizer().sep_id() == 3);
  CHECK(tokenizer().mask_id() == 4);
}

}  // namespace tokenizers_decode_test
