#include <doctest/doctest.h>

#include "hasten/base/error.h"
#include "hasten/tokenizers/detail/encoding.h"

namespace tokenizers_padding_test {

using namespace hasten;

namespace {

using Ids = std::vector<std::int32_t>;

Encoding row(const Ids& ids) {
  const Ids zeros(ids.size(), 0), ones(ids.size(), 1);
  return {.input_ids = ids,
          .token_type_ids = zeros,
          .attention_mask = ones,
          .special_tokens_mask = zeros};
}

std::vector<Encoding> rows() { return {row({5, 6, 7}), row({8}), row({})}; }

}  // namespace

TEST_CASE("rows are padded to the longest of them") {
  auto padded = rows();
  pad(padded, {.pad_id = 9, .pad_type_id = 3});
  CHECK(padded[0].input_ids == Ids{5, 6, 7});
  CHECK(padded[1].input_ids == Ids{8, 9, 9});
  CHECK(padded[1].token_type_ids == Ids{0, 3, 3});
  CHECK(padded[1].attention_mask == Ids{1, 0, 0});
  CHECK(padded[1].special_tokens_mask == Ids{0, 1, 1});
  CHECK(padded[2].input_ids == Ids{9, 9, 9});
  CHECK(padded[1].offsets.empty());
}

TEST_CASE("rows are padded to a fixed length unless they are longer, rounded up to a multiple") {
  auto padded = rows();
  pad(padded, {.length = 2});
  CHECK(padded[0].size() == 3);
  CHECK(padded[1].size() == 2);
  padded = rows();
  pad(padded, {.multiple_of = 4});
  CHECK(padded[0].size() == 4);
  padded = rows();
  pad(padded, {.length = 5, .multiple_of = 4});
  CHECK(padded[2].size() == 8);
}

TEST_CASE("padding may come before the row") {
  auto padded = rows();
  pad(padded, {.length = 2, .side = Side::left, .pad_id = 9});
  CHECK(padded[1].input_ids == Ids{9, 8});
  CHECK(padded[1].attention_mask == Ids{0, 1});
}

TEST_CASE("offsets and word ids are padded if they exist") {
  auto padded = rows();
  padded[1].offsets = {{0, 4}};
  padded[1].word_ids = {0};
  pad(padded, {.length = 2});
  CHECK(padded[1].offsets == decltype(padded[1].offsets){{0, 4}, {0, 0}});
  CHECK(padded[1].word_ids == Ids{0, -1});
}

TEST_CASE("a row without tokens gets offsets and word ids if other rows have them") {
  for (const Side side : {Side::left, Side::right}) {
    std::vector<Encoding> padded = {row({}), row({8})};
    padded[1].offsets = {{0, 4}};
    padded[1].word_ids = {0};
    pad(padded, {.length = 2, .side = side});
    CHECK(padded[0].offsets == decltype(padded[0].offsets){{0, 0}, {0, 0}});
    CHECK(padded[0].word_ids == Ids{-1, -1});
    CHECK(padded[1].offsets.size() == 2);
  }
}

TEST_CASE("rows without tokens get offsets and word ids if no row has tokens") {
  std::vector<Encoding> padded = {row({}), row({})};
  pad(padded, {.length = 2});
  for (const Encoding& each : padded) {
    CHECK(each.size() == 2);
    CHECK(each.offsets.size() == 2);
    CHECK(each.word_ids == Ids{-1, -1});
  }
}

TEST_CASE("no rows and empty rows stay unchanged") {
  pad({});
  std::vector<Encoding> empty(2);
  pad(empty, {.multiple_of = 8});
  CHECK(empty[0].size() == 0);
}

TEST_CASE("invalid lengths are refused") {
  auto padded = rows();
  CHECK_THROWS_AS(pad(padded, {.length = -1}), UsageError);
  CHECK_THROWS_AS(pad(padded, {.multiple_of = -8}), UsageError);
  CHECK_THROWS_AS(pad(padded, {.length = std::int64_t{1} << 40}), UsageError);
}

}  // namespace tokenizers_padding_test
