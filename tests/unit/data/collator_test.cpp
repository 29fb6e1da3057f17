#include "hasten/data/collator.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include "hasten/base/error.h"
#include "hasten/data/column_dataset.h"
#include "hasten/data/loader.h"
#include "unit/data/error_of.h"

namespace data_collator_test {

using namespace hasten;

namespace {

at::Tensor longs(std::vector<std::int64_t> values, at::IntArrayRef sizes) {
  return at::tensor(values, at::kLong).view(sizes);
}
at::Tensor row_of(std::vector<std::int64_t> values) { return at::tensor(values, at::kLong); }

using Ids = std::vector<std::int32_t>;

}  // namespace

TEST_CASE("collator: rows of one shape are stacked, and a label gets the batch's name and type") {
  const std::vector<TensorDict> rows = {
      {{"x", at::ones({2})}, {"label", at::ones({}, at::kInt)}},
      {{"x", at::zeros({2})}, {"label", at::zeros({}, at::kInt)}}};
  const TensorDict batch = DefaultCollator()(rows);
  CHECK(at::equal(batch.at("labels"), longs({1, 0}, {2})));
  CHECK(at::equal(batch.at("x"), at::tensor({1.f, 1.f, 0.f, 0.f}).view({2, 2})));
  const std::vector<TensorDict> real = {{{"label", at::ones({}, at::kDouble)}}};
  CHECK((DefaultCollator()(real).at("labels").scalar_type() == at::kFloat));
  CHECK(DefaultCollator()(std::vector<at::Tensor>(3, at::ones({2}))).sizes() ==
        at::IntArrayRef{3, 2});
}

TEST_CASE("collator: rows that differ are refused, and the error names row, column and shapes") {
  const auto error = [](std::vector<TensorDict> rows) {
    return error_of([&] { DefaultCollator()(rows); });
  };
  CHECK(contains(error({{{"x", at::ones({2})}}, {{"x", at::ones({3})}}}),
                 "row 1, column \"x\": got Float [3], expected Float [2], as row 0"));
  CHECK(contains(error({{{"x", at::ones({2})}}, {{"x", at::ones({2}, at::kInt)}}}), "got Int [2]"));
  CHECK(contains(error({{{"x", at::ones({2})}}, {{"x", at::Tensor()}}}), "an undefined tensor"));
  CHECK(contains(error({{{"x", at::ones({2})}}, {{"y", at::ones({2})}}}),
                 "row 1, column \"y\": got a tensor"));
  CHECK(contains(error({{{"x", at::ones({2})}}, {}}), "row 1, column \"x\": got nothing"));
  CHECK(contains(error({}), "a batch without rows"));
}

TEST_CASE("collator: token rows are padded to the longest, with mask, types, and one label") {
  TokenDataset dataset;
  dataset.push_back(Ids{5, 6, 7}, Ids{0, 0, 1});
  dataset.push_back(Ids{8}, Ids{1});
  dataset.set_labels(row_of({1, 0}));
  const std::vector<TokenRow> rows = {dataset.get(0), dataset.get(1)};
  const TensorDict batch = DataCollatorWithPadding{.pad_token_id = 9}(rows);
  CHECK(batch.size() == 4);
  CHECK(at::equal(batch.at("input_ids"), longs({5, 6, 7, 8, 9, 9}, {2, 3})));
  CHECK(at::equal(batch.at("attention_mask"), longs({1, 1, 1, 1, 0, 0}, {2, 3})));
  CHECK(at::equal(batch.at("token_type_ids"), longs({0, 0, 1, 1, 0, 0}, {2, 3})));
  CHECK(at::equal(batch.at("labels"), row_of({1, 0})));
  CHECK(DataCollatorWithPadding{.pad_to_multiple_of = 8}(rows).at("input_ids").size(1) == 8);
  CHECK(DataCollatorWithPadding{.max_length = 5}(rows).at("input_ids").size(1) == 5);
  CHECK(DataCollatorWithPadding{.pad_to_multiple_of = 4, .max_length = 5}(rows)
            .at("input_ids")
            .size(1) == 8);
  CHECK(contains(error_of([&] { DataCollatorWithPadding{.max_length = 2}(rows); }),
                 "row 0, column \"input_ids\": got 3 tokens, expected at most max_length, 2"));
}

TEST_CASE("collator: labels of tokens are padded with -100") {
  TokenDataset dataset;
  dataset.push_back(Ids{5, 6, 7}, {}, Ids{1, 2, 3});
  dataset.push_back(Ids{8}, {}, Ids{4});
  const std::vector<TokenRow> rows = {dataset.get(0), dataset.get(1)};
  const TensorDict batch = DataCollatorWithPadding{}(rows);
  CHECK(at::equal(batch.at("labels"), longs({1, 2, 3, 4, -100, -100}, {2, 3})));
  CHECK_FALSE(batch.contains("token_type_ids"));
}

TEST_CASE("collator: types and labels of tokens that do not fit the ids are refused") {
  const Ids ids = {5, 6}, longer(4000, 1), shorter = {1};
  const auto error = [](std::vector<TokenRow> rows) {
    return error_of([&] { DataCollatorWithPadding{}(rows); });
  };
  const TokenRow plain{.input_ids = ids, .token_type_ids = {}, .token_labels = {}, .label = {}};
  TokenRow row = plain;
  row.token_labels = longer;
  CHECK(contains(error({row, plain}), "data.collate"));
  CHECK(contains(error({row, plain}),
                 "row 0, column \"token_labels\": got 4000 values, expected 2, one per token"));
  row.token_labels = shorter;
  CHECK(contains(error({row}), "token_labels\": got 1 values, expected 2, one per token"));
  row.token_labels = ids;
  CHECK(error({row}) == "none");
  CHECK(contains(error({plain, row}), "row 0, column \"token_labels\": got 0 values"));
  row = plain;
  row.token_type_ids = longer;
  CHECK(contains(error({plain, row}), "row 0, column \"token_type_ids\": got 0 values"));
  CHECK(contains(error({row}), "token_type_ids\": got 4000 values"));
  row = plain;
  row.label = at::ones({}, at::kLong);
  CHECK(error({row, row}) == "none");
  CHECK(contains(error({plain, row}), "row 0, column \"label\": got none"));
  CHECK(contains(error({row, plain}), "row 1, column \"label\": got none"));
}

TEST_CASE("collator: rows of tensors are padded likewise, and other columns are stacked") {
  const std::vector<TensorDict> rows = {{{"input_ids", row_of({5, 6, 7})},
                                         {"attention_mask", row_of({1, 1, 0})},
                                         {"labels", row_of({1, 2, 3})},
                                         {"w", at::ones({2})}},
                                        {{"input_ids", row_of({8})},
                                         {"attention_mask", row_of({1})},
                                         {"labels", row_of({4})},
                                         {"w", at::ones({2})}}};
  const TensorDict batch = DataCollatorWithPadding{.label_pad_token_id = -1}(rows);
  CHECK(at::equal(batch.at("input_ids"), longs({5, 6, 7, 8, 0, 0}, {2, 3})));
  CHECK(at::equal(batch.at("attention_mask"), longs({1, 1, 0, 1, 0, 0}, {2, 3})));
  CHECK(at::equal(batch.at("labels"), longs({1, 2, 3, 4, -1, -1}, {2, 3})));
  CHECK(batch.at("w").sizes() == at::IntArrayRef{2, 2});

  const std::vector<TensorDict> labelled = {
      {{"input_ids", row_of({5, 6}).to(at::kInt)}, {"label", at::ones({}, at::kInt)}},
      {{"input_ids", row_of({5}).to(at::kInt)}, {"label", at::zeros({}, at::kInt)}}};
  const TensorDict made = DataCollatorWithPadding{}(labelled);
  CHECK(at::equal(made.at("attention_mask"), longs({1, 1, 1, 0}, {2, 2})));
  CHECK(at::equal(made.at("labels"), row_of({1, 0})));

  const std::vector<TensorDict> wrong = {
      {{"input_ids", row_of({5, 6})}, {"token_type_ids", row_of({0})}}};
  CHECK(contains(error_of([&] { DataCollatorWithPadding{}(wrong); }),
                 "token_type_ids\": got Long [1]"));
  const std::vector<TensorDict> flat = {{{"input_ids", at::ones({}, at::kLong)}}};
  CHECK(contains(error_of([&] { DataCollatorWithPadding{}(flat); }), "expected [tokens]"));
  const std::vector<TensorDict> none = {{{"x", row_of({5, 6})}}};
  CHECK(contains(error_of([&] { DataCollatorWithPadding{}(none); }),
                 "column \"input_ids\": got nothing"));
}

TEST_CASE("collator: a loader with workers pads token rows of different lengths") {
  TokenDataset dataset;
  std::vector<std::int64_t> labels;
  for (std::int32_t row = 0; row < 50; ++row) {
    dataset.push_back(Ids(static_cast<std::size_t>(1 + row % 7), row + 1));
    labels.push_back(row % 3);
  }
  dataset.set_labels(row_of(labels));
  CHECK(dataset.tokens() == 197);
  check_labels(dataset, 3);
  check_ids(dataset, 51);
  CHECK(contains(error_of([&] { check_ids(dataset, 50); }), "an id of row 49: got 50"));
  CHECK(contains(error_of([&] { check_labels(dataset, 2); }), "the label of row 2: got 2"));
  auto loader =
      make_loader(std::move(dataset), {.batch_size = 8, .shuffle = true, .num_workers = 2},
                  DataCollatorWithPadding{.pad_to_multiple_of = 4});
  std::int64_t tokens = 0;
  for (TensorDict& batch : loader) {
    CHECK(batch.at("input_ids").size(1) % 4 == 0);
    CHECK(at::equal(batch.at("input_ids").gt(0).to(at::kLong), batch.at("attention_mask")));
    CHECK(at::equal((batch.at("input_ids").select(1, 0) - 1).remainder(3), batch.at("labels")));
    tokens += batch.at("attention_mask").sum().item<std::int64_t>();
  }
  CHECK(tokens == 197);
}

TEST_CASE("token dataset: rows and labels that do not fit are refused with the row") {
  TokenDataset dataset;
  const auto push = [&](Ids ids, Ids types, Ids labels = {}) {
    return error_of([&] { dataset.push_back(ids, types, labels); });
  };
  CHECK(contains(push({}, {}), "row 0: input_ids: got no token"));
  CHECK(contains(push({1, 2}, {0}), "row 0: token_type_ids: got 1 values, expected 2"));
  CHECK(push({1, 2}, {0, 1}) == "none");
  CHECK(contains(push({1, 2}, {}), "row 1: token_type_ids: got none, expected some"));
  CHECK(contains(push({1}, {0}, {5}), "row 1: token_labels: got some, expected none"));
  CHECK(contains(error_of([&] { dataset.set_labels(row_of({1, 2})); }), "got 2 rows, expected 1"));
  CHECK(contains(error_of([&] { dataset.set_labels(at::ones({})); }), "a scalar"));
  CHECK(contains(error_of([&] { dataset.get(1); }), "got 1, expected 0 to 0"));
  CHECK(contains(error_of([&] { check_labels(dataset, 2); }), "the rows have no labels"));
  dataset.set_labels(row_of({1}).to(at::kInt));
  CHECK((dataset.get(0).label.scalar_type() == at::kLong));
  dataset.push_back(Ids{1}, Ids{0});
  CHECK(contains(error_of([&] { dataset.get(1); }), "call set_labels again"));
}

TEST_CASE("token dataset: an encoding is added without its padding, on either side") {
  TokenDataset dataset;
  Encoding right;
  right.input_ids = {7, 8, 0, 0};
  right.token_type_ids = {0, 1, 0, 0};
  right.attention_mask = {1, 1, 0, 0};
  Encoding left;
  left.input_ids = {0, 9};
  left.token_type_ids = {0, 1};
  left.attention_mask = {0, 1};
  dataset.push_back(right);
  dataset.push_back(left);
  CHECK(dataset.length(0) == 2);
  CHECK(dataset.get(0).input_ids[1] == 8);
  CHECK(dataset.get(1).input_ids[0] == 9);
  CHECK(dataset.get(1).token_type_ids[0] == 1);
}

}  // namespace data_collator_test
