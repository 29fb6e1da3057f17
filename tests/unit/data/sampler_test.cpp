#include "hasten/data/sampler.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "hasten/base/error.h"
#include "hasten/data/loader.h"
#include "hasten/data/row_lengths.h"

namespace data_sampler_test {

using namespace hasten;

namespace {

std::vector<std::int64_t> rows_of(std::int64_t rows, const OrderOptions& options,
                                  std::int64_t epoch) {
  const EpochOrder order(rows, options, epoch);
  std::vector<std::int64_t> scratch;
  const auto all = order.slice(0, order.size(), scratch);
  return {all.begin(), all.end()};
}

using Rows = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("sampler: the random order equals that of Accelerate's SeedableRandomSampler") {
  // list(SeedableRandomSampler(range(n), data_seed=seed, generator=torch.Generator())) for
  // consecutive epochs
  const OrderOptions seed_42{.shuffle = true, .seed = 42};
  CHECK(rows_of(10, seed_42, 0) == Rows{2, 6, 1, 8, 4, 5, 0, 9, 3, 7});
  CHECK(rows_of(10, seed_42, 1) == Rows{8, 4, 9, 0, 5, 1, 6, 7, 2, 3});
  CHECK(rows_of(10, seed_42, 2) == Rows{2, 6, 3, 8, 7, 9, 1, 4, 5, 0});
  CHECK(rows_of(7, {.shuffle = true, .seed = 0}, 1) == Rows{0, 6, 1, 3, 5, 2, 4});

  const std::int64_t sums[] = {113038, 934167, 116501};
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    const Rows rows = rows_of(30000, {.shuffle = true, .seed = 123}, epoch);
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) sum += static_cast<std::int64_t>(i) * rows[i];
    CHECK(sum % 1000003 == sums[epoch]);
  }
}

TEST_CASE("sampler: without shuffling the rows keep their order") {
  CHECK(rows_of(5, {}, 3) == Rows{0, 1, 2, 3, 4});
  const EpochOrder order(1000, {}, 0);
  std::vector<std::int64_t> scratch;
  const auto some = order.slice(998, 2, scratch);
  CHECK(Rows(some.begin(), some.end()) == Rows{998, 999});
}

TEST_CASE("sampler: a custom order is used and checked") {
  const OrderFunction backwards = [](std::int64_t rows, std::uint64_t, std::int64_t) {
    Rows order;
    for (std::int64_t row = rows; row-- > 0;) order.push_back(row);
    return order;
  };
  CHECK(rows_of(4, {.custom = backwards}, 0) == Rows{3, 2, 1, 0});
  const OrderFunction beyond = [](std::int64_t rows, std::uint64_t, std::int64_t) {
    return Rows{0, rows};
  };
  CHECK_THROWS_AS(rows_of(4, {.custom = beyond}, 0), UsageError);
}

namespace {

std::vector<std::int64_t> lengths_of_rows(std::int64_t rows) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t row = 0; row < rows; ++row) lengths.push_back(row * 37 % 100 + 1);
  return lengths;
}

std::string error_message(const OrderFunction& order, std::int64_t rows) {
  try {
    order(rows, 1, 0);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE(
    "sampler: rows of similar length are together, the longest first, in another order each "
    "epoch") {
  const auto lengths = lengths_of_rows(1000);
  const OrderFunction grouped = length_grouped_order(lengths, 8);
  const OrderOptions options{.seed = 3, .custom = grouped};
  const Rows order = rows_of(1000, options, 0);
  CHECK(rows_of(1000, options, 0) == order);
  CHECK(rows_of(1000, options, 1) != order);
  CHECK(std::set<std::int64_t>(order.begin(), order.end()).size() == 1000);
  const auto length = [&](std::size_t at) { return lengths[static_cast<std::size_t>(order[at])]; };
  CHECK(length(0) == 100);
  std::int64_t padded = 0, tokens = 0;
  for (std::size_t first = 0; first < 1000; first += 8) {
    std::int64_t longest = 0;
    for (std::size_t at = first; at < first + 8; ++at) {
      longest = std::max(longest, length(at));
      tokens += length(at);
    }
    padded += 8 * longest;
  }
  CHECK(padded < tokens * 11 / 10);  // a shuffle without groups has 1.75 times as many
  CHECK(error_message(grouped, 999).find("got 1000, expected 999") != std::string::npos);
  CHECK_THROWS_AS(length_grouped_order({1}, 0), UsageError);
}

TEST_CASE("sampler: rows are drawn by their weights") {
  std::vector<double> weights(100, 1);
  std::fill(weights.begin(), weights.begin() + 10, 9);  // together half of all
  weights[99] = 0;
  const Rows drawn =
      rows_of(100, {.custom = weighted_order({.weights = weights, .num_samples = 20000})}, 0);
  CHECK(drawn.size() == 20000);
  const auto heavy = std::count_if(drawn.begin(), drawn.end(), [](auto row) { return row < 10; });
  CHECK(static_cast<double>(heavy) / 20000 == doctest::Approx(90.0 / 179).epsilon(0.03));
  CHECK(std::count(drawn.begin(), drawn.end(), 99) == 0);
  const Rows once = rows_of(
      100,
      {.custom = weighted_order({.weights = weights, .num_samples = 99, .replacement = false})}, 0);
  CHECK(std::set<std::int64_t>(once.begin(), once.end()).size() == 99);
  CHECK_THROWS_AS(weighted_order({.weights = weights, .replacement = false}), UsageError);
  CHECK_THROWS_AS(weighted_order({.weights = {0, 0}}), UsageError);
  CHECK_THROWS_AS(weighted_order({.weights = {1, -1}}), UsageError);
  CHECK_THROWS_AS(weighted_order({.weights = {1, NAN}}), UsageError);
  CHECK(error_message(weighted_order({.weights = weights}), 5) != "none");
}

TEST_CASE("sampler: a loader resumes inside of a grouped and of a weighted order") {
  const ColumnDataset dataset({{"x", at::arange(40)}});
  for (const OrderFunction& order :
       {length_grouped_order(lengths_of_rows(40), 4),
        weighted_order({.weights = std::vector<double>(40, 1), .num_samples = 30})}) {
    const auto rows_from = [&](LoaderState state, std::int64_t workers) {
      auto loader = make_loader(dataset, {.batch_size = 4, .num_workers = workers, .order = order});
      loader.load_state(state);
      Rows rows;
      for (const TensorDict& batch : loader) {
        for (std::int64_t row = 0; row < batch.at("x").numel(); ++row)
          rows.push_back(batch.at("x")[row].item<std::int64_t>());
      }
      return rows;
    };
    const Rows all = rows_from({.seed = 9, .epoch = 2, .rows = 0}, 0);
    CHECK(rows_from({.seed = 9, .epoch = 2, .rows = 12}, 2) == Rows(all.begin() + 12, all.end()));
    CHECK(rows_from({.seed = 9, .epoch = 2, .batch = 3}, 0) == Rows(all.begin() + 12, all.end()));
    CHECK(rows_from({.seed = 9, .epoch = 3, .rows = 0}, 0) != all);
  }
}

TEST_CASE("sampler: lengths come from a column, or from the tokens of the rows") {
  TokenDataset tokens;
  tokens.push_back(std::vector<std::int32_t>{1, 2, 3});
  tokens.push_back(std::vector<std::int32_t>{1});
  CHECK(row_lengths(tokens, "length") == Rows{3, 1});
  const ColumnDataset columns(
      {{"input_ids", at::ones({2, 7}, at::kLong)}, {"length", at::tensor({4, 2}, at::kInt)}});
  CHECK(row_lengths(columns, "length") == Rows{4, 2});
  CHECK(row_lengths(columns, "other") == Rows{7, 7});
  struct Custom {
    std::int64_t size() const { return 2; }
    TensorDict get(std::int64_t row) const {
      return {{"input_ids", at::ones({row + 5})}, {"n", at::scalar_tensor(row, at::kLong)}};
    }
  } custom;
  CHECK(row_lengths(custom, "length") == Rows{5, 6});
  CHECK(row_lengths(custom, "n") == Rows{0, 1});
  const ColumnDataset without({{"x", at::ones({2})}});
  CHECK_THROWS_AS(row_lengths(without, "length"), DataError);
}

}  // namespace data_sampler_test
