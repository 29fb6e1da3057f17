#include "hasten/data/views.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <set>
#include <string>

#include "hasten/data/column_dataset.h"
#include "hasten/data/loader.h"
#include "hasten/data/row_lengths.h"
#include "unit/data/error_of.h"

namespace views_test {

using namespace hasten;

namespace {

using Numbers = std::vector<std::int64_t>;

// The rows first, first + 1, ...
struct CountingDataset {
  std::int64_t first = 0, rows = 0;
  std::int64_t size() const { return rows; }
  std::int64_t get(std::int64_t index) const { return first + index; }
};

template <class D>
Numbers all_of(const D& dataset) {
  Numbers rows;
  for (std::int64_t row = 0; row < dataset.size(); ++row)
    rows.push_back(dataset.get(row, RowContext{.row = row}));
  return rows;
}

}  // namespace

TEST_CASE("views: a view takes a part of the rows, filters them, or applies a function") {
  const CountingDataset ten{.first = 0, .rows = 10};
  CHECK(all_of(select_rows(ten, {7, 0, 7})) == Numbers{7, 0, 7});
  CHECK(all_of(take_rows(ten, 3)) == Numbers{0, 1, 2});
  CHECK(all_of(skip_rows(ten, 8)) == Numbers{8, 9});
  CHECK(take_rows(ten, 99).size() == 10);
  CHECK(skip_rows(ten, 99).size() == 0);
  const auto is_even = [](std::int64_t row) { return row % 2 == 0; };
  const auto tenfold = [](std::int64_t row) { return 10 * row; };
  CHECK(all_of(map_rows(filter_rows(ten, is_even), tenfold)) == Numbers{0, 20, 40, 60, 80});
  CHECK(contains(error_of([&] { select_rows(ten, {10}); }), "data.row"));
}

TEST_CASE("views: datasets are concatenated and interleaved") {
  const CountingDataset three{.first = 0, .rows = 3}, four{.first = 100, .rows = 4};
  CHECK(all_of(concatenate_datasets(three, take_rows(four, 2))) == Numbers{0, 1, 2, 100, 101});
  // The same as in tests/oracle/data_test.cpp, the longer dataset first.
  CHECK(all_of(interleave_datasets({.stopping_strategy = StoppingStrategy::all_exhausted}, four,
                                   three)) == Numbers{100, 0, 101, 1, 102, 2, 103, 0});
  const auto drawn = [&](StoppingStrategy strategy, std::uint64_t seed) {
    const CountingDataset small{.first = 0, .rows = 300}, large{.first = 1000, .rows = 3000};
    return all_of(interleave_datasets(
        {.probabilities = {0.25, 0.75}, .seed = seed, .stopping_strategy = strategy}, small,
        large));
  };
  const Numbers first = drawn(StoppingStrategy::first_exhausted, 1);
  CHECK(first.back() == 299);
  CHECK(static_cast<double>(first.size()) == doctest::Approx(1200).epsilon(0.1));
  CHECK(drawn(StoppingStrategy::first_exhausted, 1) == first);
  CHECK(drawn(StoppingStrategy::first_exhausted, 2) != first);
  CHECK(drawn(StoppingStrategy::all_exhausted, 1).back() == 3999);
  const Numbers once = drawn(StoppingStrategy::all_exhausted_without_replacement, 1);
  CHECK(once.size() == 3300);
  CHECK(std::set<std::int64_t>(once.begin(), once.end()).size() == 3300);
}

TEST_CASE("views: interleaving that cannot end is refused") {
  const CountingDataset rows{.first = 0, .rows = 3};
  const auto error = [&](InterleaveOptions options) {
    return error_of([&] { interleave_datasets(options, rows, rows); });
  };
  CHECK(contains(error({.probabilities = {1}}), "got 1, expected 2, one for each dataset"));
  CHECK(contains(error({.probabilities = {0.5, 0.6}}), "a sum of 1.1"));
  CHECK(contains(error({.probabilities = {-0.5, 1.5}}), "got -0.5"));
  CHECK(contains(
      error({.probabilities = {1, 0}, .stopping_strategy = StoppingStrategy::all_exhausted}),
      "must be exhausted"));
  CHECK(error({.probabilities = {1, 0}}) == "none");
  CHECK(contains(error_of([&] { interleave_datasets({}, rows, CountingDataset{}); }),
                 "dataset 1 of 2: got no rows"));
}

TEST_CASE("views: a split divides the rows, by share or by number") {
  const CountingDataset ten{.first = 0, .rows = 10};
  const auto split = train_test_split(ten, {.test_size = 0.25, .seed = 3});
  CHECK(split.test.size() == 3);  // rounded up
  std::set<std::int64_t> all;
  for (const Numbers& part : {all_of(split.train), all_of(split.test)})
    all.insert(part.begin(), part.end());
  CHECK(all.size() == 10);
  CHECK(all_of(train_test_split(ten, {.test_size = 0.25, .seed = 3}).test) == all_of(split.test));
  CHECK(all_of(train_test_split(ten, {.test_size = 2, .shuffle = false}).test) == Numbers{8, 9});
  CHECK(contains(error_of([&] { train_test_split(ten, {.test_size = 10}); }), "data.option"));
  CHECK(contains(error_of([&] { train_test_split(ten, {.test_size = 0}); }), "data.option"));
}

TEST_CASE("views: a loader reads them in whole batches if the dataset makes batches") {
  const ColumnDataset columns({{"x", at::arange(10)}});
  const auto view = skip_rows(columns, 4);
  static_assert(BatchDataset<std::remove_const_t<decltype(view)>>);
  Numbers seen;
  auto loader = make_loader(view, {.batch_size = 4, .num_workers = 2});
  for (const TensorDict& batch : loader) {
    for (std::int64_t row = 0; row < batch.at("x").numel(); ++row)
      seen.push_back(batch.at("x")[row].item<std::int64_t>());
  }
  CHECK(seen == Numbers{4, 5, 6, 7, 8, 9});
  TokenDataset tokens;
  tokens.push_back(std::vector<std::int32_t>{1, 2, 3});
  tokens.push_back(std::vector<std::int32_t>{4});
  auto chosen = select_rows(tokens, {1, 0, 1});
  CHECK(row_lengths(chosen, "length") == Numbers{1, 3, 1});
  auto padded = make_loader(chosen, {.batch_size = 3}, DataCollatorWithPadding{});
  for (const TensorDict& batch : padded) CHECK(batch.at("input_ids").size(1) == 3);
}

TEST_CASE("views: a row's context has its number in the view") {
  struct Keys {
    std::int64_t size() const { return 3; }
    std::int64_t get(std::int64_t, const RowContext& context) const { return context.row; }
  };
  CHECK(all_of(select_rows(Keys(), {2, 2, 0})) == Numbers{0, 1, 2});
}

}  // namespace views_test
