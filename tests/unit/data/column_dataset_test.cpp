#include "hasten/data/column_dataset.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/data/loader.h"
#include "hasten/formats/safetensors.h"
#include "unit/data/error_of.h"

namespace data_column_dataset_test {

using namespace hasten;

namespace {

at::Tensor longs(std::vector<std::int64_t> values) { return at::tensor(values, at::kLong); }

}  // namespace

TEST_CASE("columns: consecutive rows are views and others copies, with the right values") {
  const at::Tensor ids = at::arange(24, at::kInt).view({6, 4});
  const ColumnDataset dataset(
      {{"input_ids", ids}, {"labels", at::arange(6)}, {"empty", at::empty({6, 0})}});
  CHECK(dataset.size() == 6);
  const std::vector<std::int64_t> range = {2, 3, 4}, picked = {5, 0, 5};
  const TensorDict view = dataset.get_batch(range);
  CHECK(view.at("input_ids").const_data_ptr() == ids[2].const_data_ptr());
  CHECK(at::equal(view.at("labels"), longs({2, 3, 4})));
  const TensorDict copy = dataset.get_batch(picked);
  CHECK(at::equal(copy.at("input_ids"), ids.index_select(0, longs(picked))));
  CHECK(at::equal(copy.at("labels"), longs(picked)));
  CHECK(copy.at("empty").sizes() == at::IntArrayRef{3, 0});
  CHECK(at::equal(dataset.get(4).at("input_ids"), ids[4]));
}

TEST_CASE("columns: the rows of a lazily conjugated column are conjugated") {
  const at::Tensor x = at::complex(at::rand({4, 2}), at::rand({4, 2})).conj();
  const at::Tensor negated = at::_neg_view(at::rand({4, 2}));
  const ColumnDataset dataset({{"x", x}, {"negated", negated}});
  const std::vector<std::int64_t> picked = {3, 0};
  const TensorDict copy = dataset.get_batch(picked);
  CHECK(at::equal(copy.at("x"), x.index_select(0, longs(picked)).resolve_conj()));
  CHECK(at::equal(copy.at("negated"), negated.index_select(0, longs(picked)).resolve_neg()));
}

TEST_CASE("columns: a loader returns every row once and complete, in any order") {
  const ColumnDataset dataset = dummy_classification(103, 5);
  for (const bool shuffle : {false, true}) {
    auto loader =
        make_loader(dataset, {.batch_size = 8, .shuffle = shuffle, .num_workers = shuffle ? 2 : 0});
    at::Tensor sum = at::zeros({5}, at::kLong);
    std::int64_t rows = 0;
    for (TensorDict& batch : loader) {
      sum += batch.at("input_ids").sum(0);
      rows += batch.at("labels").size(0);
    }
    CHECK(rows == 103);
    CHECK(at::equal(sum, dataset.columns().at("input_ids").sum(0)));
  }
}

TEST_CASE("columns: tensors that form no table are refused, and the error names the column") {
  const auto error = [](TensorDict columns) {
    return error_of([&] { ColumnDataset dataset(std::move(columns)); });
  };
  CHECK(contains(error({}), "data.columns"));
  CHECK(contains(error({{"a", at::ones({})}}), "column \"a\": got a scalar"));
  CHECK(contains(error({{"a", at::Tensor()}}), "an undefined tensor"));
  CHECK(contains(error({{"a", at::ones({3})}, {"b", at::ones({4})}}),
                 "column \"b\": got 4 rows, expected 3, as column \"a\""));
  const ColumnDataset dataset({{"a", at::ones({3})}});
  CHECK(contains(error_of([&] { dataset.get(3); }), "got 3, expected 0 to 2"));
  CHECK(contains(error_of([&] { dataset.get_batch(std::vector<std::int64_t>{0, -1}); }), "got -1"));
  CHECK(contains(error_of([&] {
                   make_loader(ColumnDataset({{"a", at::ones({0, 3})}}));
                 }),
                 "data.empty"));
}

TEST_CASE("columns: a safetensors file is memory-mapped, and its columns are checked") {
  TemporaryDirectory scratch;
  const auto path = scratch.path() / "x.safetensors";
  const at::Tensor ids = at::arange(12, at::kInt).view({3, 4});
  save_safetensors(path, {{"input_ids", ids},
                          {"attention_mask", at::ones({3, 4}, at::kInt)},
                          {"labels", at::arange(3, at::kInt)},
                          {"weight", at::ones({3})}});
  const ColumnDataset dataset = load_columns(path);
  CHECK(at::equal(dataset.columns().at("input_ids"), ids));
  CHECK((dataset.columns().at("labels").scalar_type() == at::kLong));

  const auto error = [&](const TensorDict& columns) {
    save_safetensors(path, columns);
    return error_of([&] { load_columns(path); });
  };
  CHECK(contains(error({{"ids", ids}}), "there is no column \"input_ids\": got [ids]"));
  CHECK(contains(error({{"input_ids", at::ones({3, 4})}}),
                 "input_ids: got Float, expected int64 or int32"));
  CHECK(contains(error({{"input_ids", at::arange(3)}}), "expected [rows, length]"));
  CHECK(contains(error({{"input_ids", ids}, {"attention_mask", at::ones({3, 5}, at::kLong)}}),
                 "attention_mask: got [3, 5], expected [3, 4], as input_ids"));
  CHECK(contains(error({{"input_ids", ids}, {"labels", at::arange(4)}}),
                 "x.safetensors: column \"labels\": got 4 rows"));
}

TEST_CASE("columns: dummy data have the requested sizes, and one seed gives one data set") {
  const ColumnDataset dataset = dummy_classification(20, 30, 5, 9, 1);
  const at::Tensor& ids = dataset.columns().at("input_ids");
  CHECK(ids.sizes() == at::IntArrayRef{20, 30});
  CHECK(ids.min().item<int>() == 5);
  CHECK(ids.max().item<int>() == 8);
  CHECK(dataset.columns().at("labels").max().item<int>() == 1);
  CHECK(at::equal(dummy_classification(20, 30, 5, 9, 1).columns().at("input_ids"), ids));
  CHECK(contains(error_of([] { dummy_classification(0); }), "data.option"));
}

TEST_CASE("columns: labels out of range are found with row and value, and -100 is ignored") {
  const auto error = [](at::Tensor labels, std::int64_t count) {
    return error_of([&] { check_labels(ColumnDataset({{"labels", std::move(labels)}}), count); });
  };
  CHECK(error(longs({0, 1, 2, -100}), 3) == "none");
  CHECK(
      contains(error(longs({0, 1, 3}), 3), "the label of row 2: got 3, expected 0 to 2, or -100"));
  CHECK(contains(error(longs({-1}), 3), "the label of row 0: got -1"));
  CHECK(contains(error(longs({0, 1, 2, 0, 0, 7}).view({2, 3}), 3), "the label of row 1: got 7"));
  at::Tensor many = at::zeros({10'000}, at::kLong);
  many[8191] = 2;
  CHECK(contains(error(many, 2), "the label of row 8191: got 2"));
  CHECK(error(at::rand({4}), 1) == "none");
  CHECK(error(at::rand({4, 3}), 3) == "none");
  CHECK(contains(error(at::rand({4, 2}), 3), "got 2 per row, expected 3 per row"));
  CHECK(contains(error(at::rand({4}), 3), "got 1 per row"));
  CHECK(error(longs({5}), 1) == "none");
  CHECK(contains(error(longs({5}), 0), "num_labels: got 0"));
  CHECK(contains(error_of([] {
                   check_labels(ColumnDataset({{"a", at::ones({1})}}), 2);
                 }),
                 "no column \"labels\""));
}

TEST_CASE("columns: the problem type decides which labels are valid") {
  const auto error = [](const at::Tensor& labels, std::int64_t count, const std::string& problem) {
    return error_of([&] {
      check_labels(ColumnDataset({{"labels", labels}}), count, "f", problem);
    });
  };
  const at::Tensor shares = at::tensor({0.0, 1.0, 0.5, 1.0}).view({2, 2});
  CHECK(error(shares, 2, "") == "none");
  CHECK(error(shares * 9, 2, "regression") == "none");
  CHECK(contains(error(shares * 9, 2, ""), "f: the label of row 0: got 9, expected 0 to 1"));
  CHECK(contains(error(shares, 2, "single_label_classification"), "f: labels: got Double"));
  CHECK(
      contains(error(longs({0, 1}), 2, "multi_label_classification"), "got 1 per row, expected 2"));
  CHECK(contains(error(longs({0, 1}), 2, "regression"), "got 1 per row, expected 2"));
  CHECK(contains(error(longs({0, 1}), 1, "single_label_classification"), "row 1: got 1"));
  CHECK(contains(error(shares.log(), 2, "regression"), "the label of row 0: got"));
}

TEST_CASE("columns: dummy rows use the ids of the vocabulary") {
  for (const std::int64_t size : {1, 2, 61, 28'996, 50'000}) {
    CAPTURE(size);
    const at::Tensor ids = dummy_rows(4, 500, size).columns().at("input_ids");
    CHECK(ids.min().item<std::int64_t>() >= std::min<std::int64_t>(100, size / 2));
    CHECK(ids.max().item<std::int64_t>() < std::min<std::int64_t>(30'000, size));
  }
  CHECK(at::equal(dummy_rows(3, 4, 30'522).columns().at("input_ids"),
                  dummy_classification(3, 4).columns().at("input_ids")));
}

TEST_CASE("columns: ids outside the vocabulary are found with row and value") {
  const auto error = [](at::Tensor ids, std::int64_t size) {
    return error_of([&] { check_ids(ColumnDataset({{"input_ids", std::move(ids)}}), size); });
  };
  CHECK(error(longs({0, 1, 2, 3}).view({2, 2}), 4) == "none");
  CHECK(contains(error(longs({0, 1, 4, 3}).view({2, 2}), 4),
                 "an id of row 1: got 4, expected 0 to 3"));
  CHECK(
      contains(error(longs({0, -1, 2, 3}).view({2, 2}).to(at::kInt), 4), "an id of row 0: got -1"));
  CHECK(contains(error(at::rand({2, 2}), 4), "input_ids: got Float"));
  CHECK(contains(error_of([] {
                   check_ids(ColumnDataset({{"a", at::ones({1})}}), 2);
                 }),
                 "input_ids"));
}

TEST_CASE("columns: rows that are too long, and columns without tokens, are refused") {
  const ColumnDataset five({{"input_ids", at::ones({3, 5}, at::kLong)}});
  check_lengths(five, 5);
  CHECK(contains(error_of([&] { check_lengths(five, 4, "a.safetensors"); }),
                 "data.lengths | a.safetensors: input_ids: got 5 tokens per row"));
  const ColumnDataset flat({{"input_ids", at::ones({3}, at::kLong)}});
  CHECK(contains(error_of([&] { check_lengths(flat, 4); }),
                 "data.lengths | input_ids: got one number per row, expected [rows, tokens]"));
}

}  // namespace data_column_dataset_test
