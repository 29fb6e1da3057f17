#include "hasten/data/loader.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/data.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <random>
#include <ranges>
#include <thread>

#include "hasten/data/column_dataset.h"
#include "processor_time.h"
#include "slowdown.h"
#include "unit/code_of.h"

namespace data_loader_test {

using namespace hasten;

namespace {

using Numbers = std::vector<std::int64_t>;

struct Row {
  std::int64_t number;
};
struct NumberCollator {
  Numbers operator()(std::span<const Row> rows) const {
    Numbers numbers;
    for (const Row& row : rows) numbers.push_back(row.number);
    return numbers;
  }
};
struct CountDataset {
  std::int64_t rows;
  std::int64_t size() const { return rows; }
  Row get(std::int64_t index) const { return {index}; }
};
// A stream of 0, 1, ... that counts the rows read.
struct Stream {
  std::int64_t rows;
  std::shared_ptr<std::vector<std::int64_t>> rewinds =
      std::make_shared<std::vector<std::int64_t>>();
  std::int64_t at = 0;
  std::optional<Row> next() { return at < rows ? std::optional<Row>(Row{at++}) : std::nullopt; }
  void rewind(std::int64_t epoch) {
    rewinds->push_back(epoch);
    at = 0;
  }
};
struct SkippingStream : Stream {
  explicit SkippingStream(std::int64_t count) : Stream{count} {}
  std::shared_ptr<std::int64_t> skipped = std::make_shared<std::int64_t>(0);
  std::int64_t size() const { return rows; }
  void skip(std::int64_t count) {
    *skipped += count;
    at += count;
  }
};

template <class Batch>
std::vector<Batch> pass(Loader<Batch>& loader) {
  std::vector<Batch> batches;
  for (Batch& batch : loader) batches.push_back(batch);
  return batches;
}

}  // namespace

TEST_CASE("loader: batches follow the rows, and the last one is shorter or dropped") {
  auto loader = make_loader(CountDataset{7}, {.batch_size = 3}, NumberCollator{});
  static_assert(std::is_same_v<decltype(loader), Loader<Numbers>>);
  static_assert(std::ranges::input_range<decltype(loader)>);
  CHECK(pass(loader) == std::vector<Numbers>{{0, 1, 2}, {3, 4, 5}, {6}});
  CHECK(loader.size() == 3);
  CHECK(loader.dataset_size() == 7);
  CHECK(loader.batch_size() == 3);
  auto dropping =
      make_loader(CountDataset{7}, {.batch_size = 3, .drop_last = true}, NumberCollator{});
  CHECK(pass(dropping) == std::vector<Numbers>{{0, 1, 2}, {3, 4, 5}});
  CHECK(dropping.size() == 2);
}

TEST_CASE("loader: every pass is a new epoch, with the order of its seed and epoch") {
  auto loader = make_loader(CountDataset{10}, {.batch_size = 5, .shuffle = true, .seed = 42},
                            NumberCollator{});
  CHECK(loader.epoch() == 0);
  CHECK(pass(loader) == std::vector<Numbers>{{2, 6, 1, 8, 4}, {5, 0, 9, 3, 7}});
  CHECK(loader.epoch() == 1);
  CHECK(pass(loader) == std::vector<Numbers>{{8, 4, 9, 0, 5}, {1, 6, 7, 2, 3}});
  loader.set_epoch(0);
  CHECK(pass(loader)[0] == Numbers{2, 6, 1, 8, 4});
}

TEST_CASE("loader: an interrupted pass restarts, and one left at its last batch is complete") {
  auto loader = make_loader(CountDataset{6}, {.batch_size = 2, .shuffle = true}, NumberCollator{});
  const auto first = pass(loader);
  loader.set_epoch(0);
  for (const Numbers& batch : loader) {
    CHECK(batch == first[0]);
    break;
  }
  CHECK(loader.epoch() == 0);
  CHECK(loader.state() == LoaderState{.seed = 42, .epoch = 0, .batch = 1, .rows = 2});
  CHECK(pass(loader) == first);
  for ([[maybe_unused]] const Numbers& batch : loader) {
    if (loader.is_last()) break;
  }
  CHECK(loader.epoch() == 2);
  CHECK(loader.state() == LoaderState{.seed = 42, .epoch = 2, .batch = 0, .rows = 0});
}

TEST_CASE("loader: epoch, batch and whether it is the last are known during a batch") {
  for (const std::int64_t workers : {0, 2}) {
    auto loader =
        make_loader(CountDataset{5}, {.batch_size = 2, .num_workers = workers}, NumberCollator{});
    auto stream =
        make_loader(Stream{5}, {.batch_size = 2, .num_workers = workers}, NumberCollator{});
    CHECK_FALSE(loader.is_last());
    for (Loader<Numbers>* each : {&loader, &stream}) {
      for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
        std::int64_t number = 0;
        for ([[maybe_unused]] const Numbers& batch : *each) {
          CHECK(each->epoch() == epoch);
          CHECK(each->batch() == number);
          CHECK(each->is_last() == (number == 2));
          ++number;
        }
        CHECK(number == 3);
      }
    }
  }
}

TEST_CASE("loader: a new loader continues exactly where the state was taken, at any batch") {
  const auto make = [](std::int64_t workers) {
    return make_loader(CountDataset{23},
                       {.batch_size = 4, .shuffle = true, .num_workers = workers, .seed = 7},
                       NumberCollator{});
  };
  auto whole = make(0);
  std::vector<Numbers> expected;
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (const Numbers& batch : pass(whole)) expected.push_back(batch);
  }
  REQUIRE(expected.size() == 18);
  for (std::size_t stop = 0; stop < 12; ++stop) {
    CAPTURE(stop);
    auto first = make(0);
    LoaderState state = first.state();
    std::vector<Numbers> seen;
    for (int epoch = 0; epoch < 2 && seen.size() < stop; ++epoch) {
      for (const Numbers& batch : first) {
        seen.push_back(batch);
        state = first.state();
        if (seen.size() == stop) break;
      }
    }
    auto second = make_loader(CountDataset{23},
                              {.batch_size = 4, .shuffle = true, .num_workers = 2, .seed = 99},
                              NumberCollator{});
    second.load_state(state);
    CHECK(second.state() == state);
    while (seen.size() < 18) {
      for (const Numbers& batch : second) seen.push_back(batch);
    }
    CHECK(seen == expected);
  }
}

TEST_CASE("loader: seek applies to the next pass only, and set_epoch keeps it for its epoch") {
  auto loader = make_loader(CountDataset{8}, {.batch_size = 2}, NumberCollator{});
  loader.seek(3);
  CHECK(loader.batch() == 3);
  CHECK(pass(loader) == std::vector<Numbers>{{6, 7}});
  CHECK(loader.epoch() == 1);
  CHECK(pass(loader).size() == 4);
  loader.load_state({.seed = 42, .epoch = 5, .batch = 2});
  loader.set_epoch(5);
  CHECK(pass(loader).size() == 2);
  loader.load_state({.seed = 42, .epoch = 5, .batch = 2});
  loader.set_epoch(6);
  CHECK(pass(loader).size() == 4);
  CHECK(loader.epoch() == 7);
  loader.seek(4);  // the end of epoch 7 is the start of epoch 8
  CHECK(loader.epoch() == 8);
  CHECK(pass(loader).size() == 4);
}

TEST_CASE("loader: a state continues at its row with any batch_size") {
  auto loader = make_loader(CountDataset{11}, {.batch_size = 4}, NumberCollator{});
  auto other = make_loader(CountDataset{11}, {.batch_size = 3}, NumberCollator{});
  auto stream = make_loader(Stream{11}, {.batch_size = 3}, NumberCollator{});
  auto it = loader.begin();
  other.load_state(loader.state());
  stream.load_state(loader.state());
  CHECK(other.batch() == 1);
  CHECK(pass(other) == std::vector<Numbers>{{4, 5, 6}, {7, 8, 9}, {10}});
  CHECK(pass(stream) == std::vector<Numbers>{{4, 5, 6}, {7, 8, 9}, {10}});
  CHECK(other.state() == LoaderState{.seed = 42, .epoch = 1, .batch = 0, .rows = 0});
  auto dropping =
      make_loader(CountDataset{11}, {.batch_size = 3, .drop_last = true}, NumberCollator{});
  dropping.load_state(loader.state());
  CHECK(pass(dropping) == std::vector<Numbers>{{4, 5, 6}, {7, 8, 9}});
  dropping.load_state({.seed = 42, .epoch = 0, .rows = 9});  // too few rows remain for a batch
  CHECK(dropping.epoch() == 1);
}

TEST_CASE("loader: a position out of range is refused") {
  auto loader = make_loader(CountDataset{8}, {.batch_size = 2}, NumberCollator{});
  CHECK(code_of([&] { loader.seek(5); }) == "data.state");
  CHECK(code_of([&] { loader.seek(-1); }) == "data.state");
  CHECK(code_of([&] { loader.set_epoch(-1); }) == "data.state");
  CHECK(code_of([&] { loader.load_state({.epoch = 0, .batch = 9}); }) == "data.state");
  CHECK(code_of([&] { loader.load_state({.rows = 9}); }) == "data.state");
  CHECK(code_of([&] { loader.load_state({.rows = -2}); }) == "data.state");
  auto stream = make_loader(Stream{8}, {.batch_size = 2}, NumberCollator{});
  stream.seek(9);
  CHECK(code_of([&] { pass(stream); }) == "data.state");
}

TEST_CASE("loader: invalid options are refused when the loader is created") {
  const auto code = [](const LoaderOptions& options, std::int64_t rows = 4) {
    return code_of([&] { make_loader(CountDataset{rows}, options, NumberCollator{}); });
  };
  CHECK(code({.batch_size = 0}) == "data.option");
  CHECK(code({.batch_size = -3}) == "data.option");
  CHECK(code({.num_workers = -1}) == "data.option");
  CHECK(code({.num_workers = 100'000}) == "data.option");
  CHECK(code({.prefetch_factor = 0}) == "data.option");
  CHECK(code({.batch_size = 5, .drop_last = true}) == "data.option");
  CHECK(code({}, 0) == "data.empty");
  const OrderFunction order = [](std::int64_t, std::uint64_t, std::int64_t) { return Numbers{0}; };
  CHECK(code({.shuffle = true, .order = order}) == "data.option");
  CHECK(code_of([&] { make_loader(Stream{4}, {.shuffle = true}, NumberCollator{}); }) ==
        "data.option");
  CHECK(code_of([&] { make_loader(SkippingStream(0), {}, NumberCollator{}); }) == "data.empty");
}

TEST_CASE("loader: a custom order sets the size of the epoch") {
  const OrderFunction even = [](std::int64_t rows, std::uint64_t, std::int64_t epoch) {
    Numbers order;
    for (std::int64_t row = epoch; row < rows; row += 2) order.push_back(row);
    return order;
  };
  auto loader = make_loader(CountDataset{6}, {.batch_size = 2, .order = even}, NumberCollator{});
  CHECK(loader.size() == 2);
  CHECK(pass(loader) == std::vector<Numbers>{{0, 2}, {4}});
  CHECK(pass(loader) == std::vector<Numbers>{{1, 3}, {5}});
  CHECK(code_of([&] { pass(loader); }) == "data.order");  // epoch 2 has fewer rows
}

TEST_CASE("loader: streams are rewound for each pass, and drop the rows that a seek skips") {
  Stream stream{7};
  auto rewinds = stream.rewinds;
  auto loader = make_loader(stream, {.batch_size = 3}, NumberCollator{});
  CHECK_FALSE(loader.has_size());
  CHECK(code_of([&] { loader.size(); }) == "data.unknown-size");
  CHECK(code_of([&] { loader.dataset_size(); }) == "data.unknown-size");
  CHECK(pass(loader) == std::vector<Numbers>{{0, 1, 2}, {3, 4, 5}, {6}});
  loader.seek(2);
  CHECK(pass(loader) == std::vector<Numbers>{{6}});
  CHECK(*rewinds == Numbers{0, 1});
  auto dropping = make_loader(Stream{7}, {.batch_size = 3, .drop_last = true}, NumberCollator{});
  CHECK(pass(dropping).size() == 2);
  auto exact = make_loader(Stream{6}, {.batch_size = 3}, NumberCollator{});
  CHECK(pass(exact).size() == 2);
  CHECK(exact.epoch() == 1);
  auto empty = make_loader(Stream{0}, {.batch_size = 3}, NumberCollator{});
  CHECK(code_of([&] { pass(empty); }) == "data.empty");
}

TEST_CASE("loader: 100,000 skipped batches read no row and cost less than 10 ms") {
  constexpr std::int64_t kSkipped = 100'000, kBatch = 8;
  struct ReadCountingDataset : CountDataset {
    std::shared_ptr<std::int64_t> reads = std::make_shared<std::int64_t>(0);
    Row get(std::int64_t index) const {
      ++*reads;
      return {index};
    }
  };
  const ReadCountingDataset data{{(kSkipped + 10) * kBatch}};
  for (const bool shuffle : {false, true}) {
    CAPTURE(shuffle);
    auto loader = make_loader(data, {.batch_size = kBatch, .shuffle = shuffle}, NumberCollator{});
    // The time to the first batch. The order of the epoch is drawn wherever a pass starts.
    const auto time_from = [&](std::int64_t batch) {
      loader.set_epoch(0);
      loader.seek(batch);
      *data.reads = 0;
      const double start = thread_seconds();
      const auto first = loader.begin();
      CHECK((*first).size() == kBatch);
      const double seconds = thread_seconds() - start;
      CHECK(*data.reads == kBatch);
      return seconds;
    };
    // The median of differences, because other programs slow down several attempts in a row.
    std::array<double, 15> costs{};
    for (double& cost : costs) cost = time_from(kSkipped) - time_from(0);
    std::ranges::nth_element(costs, costs.begin() + costs.size() / 2);
    CHECK(costs[costs.size() / 2] < 0.01 * kSlowdown);
  }
}

TEST_CASE("loader: a stream that can skip is not read to seek, and may report its size") {
  SkippingStream stream(10);
  auto skipped = stream.skipped;
  auto loader = make_loader(stream, {.batch_size = 3}, NumberCollator{});
  CHECK(loader.size() == 4);
  CHECK(loader.dataset_size() == 10);
  loader.seek(3);
  CHECK(pass(loader) == std::vector<Numbers>{{9}});
  CHECK(*skipped == 9);
}

TEST_CASE("loader: rows and collators may use the keys of their randomness") {
  struct Random {
    std::int64_t size() const { return 6; }
    std::uint64_t get(std::int64_t index, const RowContext& context) const {
      CHECK(context.row == index);
      return context.key();
    }
  };
  struct WithContext {
    std::pair<std::vector<std::uint64_t>, BatchContext> operator()(
        std::span<const std::uint64_t> keys, const BatchContext& context) const {
      return {{keys.begin(), keys.end()}, context};
    }
  };
  std::set<std::uint64_t> keys, batch_keys;
  std::vector<std::vector<std::uint64_t>> by_batch_size[2];
  for (const std::int64_t workers : {0, 3}) {
    auto loader = make_loader(
        Random{}, {.batch_size = workers + 1, .num_workers = workers, .seed = 3}, WithContext{});
    for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
      std::vector<std::uint64_t> all;
      for (const auto& [row_keys, context] : loader) {
        CHECK(context.seed == 3);
        CHECK(context.epoch == epoch);
        CHECK(context.batch == loader.batch());
        all.insert(all.end(), row_keys.begin(), row_keys.end());
        keys.insert(row_keys.begin(), row_keys.end());
        batch_keys.insert(context.key());
      }
      by_batch_size[workers == 0].push_back(all);
    }
  }
  CHECK(by_batch_size[0] == by_batch_size[1]);  // with any batch size and any number of workers
  CHECK(keys.size() == 12);
  CHECK(batch_keys.size() == 12);
}

TEST_CASE("loader: a second loop over the same loader ends the first, which then throws") {
  auto loader = make_loader(CountDataset{6}, {.batch_size = 2}, NumberCollator{});
  auto outer = loader.begin();
  auto inner = loader.begin();
  CHECK(*inner == Numbers{0, 1});
  CHECK(code_of([&] { ++outer; }) == "data.pass");
  CHECK(code_of([&] { (void)*outer; }) == "data.pass");
  ++inner;
  CHECK(*inner == Numbers{2, 3});
}

TEST_CASE("loader: it can be moved during a pass, and shares a dataset by shared pointer") {
  auto dataset = std::make_shared<CountDataset>(CountDataset{4});
  auto loader = make_loader(dataset, {.batch_size = 2}, NumberCollator{});
  auto it = loader.begin();
  auto moved = std::move(loader);
  CHECK(moved.is_last() == false);
  ++it;
  CHECK(*it == Numbers{2, 3});
  CHECK(moved.is_last());
  dataset->rows = 6;  // a dataset that grows is read with its new size in the next pass
  CHECK(pass(moved).size() == 3);
}

TEST_CASE("loader: without a collator it returns batches of tensors") {
  struct Pairs {
    std::int64_t size() const { return 3; }
    TensorDict get(std::int64_t index) const {
      return {{"x", at::full({2}, index)}, {"label", at::full({}, index)}};
    }
  };
  auto loader = make_loader(Pairs{}, {.batch_size = 2});
  static_assert(std::is_same_v<decltype(loader), Loader<TensorDict>>);
  for (TensorDict& batch : loader) {
    CHECK(batch.at("x").dim() == 2);
    CHECK((batch.at("labels").scalar_type() == at::kLong));
    batch.clear();  // the caller owns the batch
  }
}

TEST_CASE("loader: pinning is harmless without CUDA, for any type of batch") {
  auto numbers =
      make_loader(CountDataset{4}, {.batch_size = 2, .pin_memory = true}, NumberCollator{});
  CHECK(pass(numbers).size() == 2);
  auto tensors =
      make_loader(ColumnDataset({{"a", at::arange(4)}}), {.batch_size = 2, .pin_memory = true});
  for (TensorDict& batch : tensors) CHECK(batch.at("a").is_pinned() == at::hasCUDA());
}

namespace {

// A dataset in the style of torch::data.
struct CountedDataset : torch::data::datasets::Dataset<CountedDataset> {
  explicit CountedDataset(std::size_t count) : count(count) {}
  torch::data::Example<> get(std::size_t index) override {
    return {at::full({2}, static_cast<double>(index)), at::full({}, static_cast<double>(index))};
  }
  std::optional<std::size_t> size() const override { return count; }
  std::size_t count;
};

struct UnsizedDataset : torch::data::datasets::Dataset<UnsizedDataset> {
  torch::data::Example<> get(std::size_t) override { return {}; }
  std::optional<std::size_t> size() const override { return std::nullopt; }
};

}  // namespace

TEST_CASE("loader: torch::data's map datasets work unchanged, with a size and a position") {
  auto stacked = make_loader(CountedDataset(10).map(torch::data::transforms::Stack<>()),
                             {.batch_size = 4, .num_workers = 2});
  CHECK(stacked.size() == 3);
  CHECK(stacked.dataset_size() == 10);
  std::vector<double> seen;
  for (const auto& batch : stacked) {
    CHECK(batch.data.size(0) == batch.target.size(0));
    CHECK(batch.data.size(1) == 2);
    for (std::int64_t i = 0; i < batch.target.size(0); ++i)
      seen.push_back(batch.target[i].item<double>());
  }
  CHECK(seen == std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});

  auto plain = make_loader(std::make_shared<CountedDataset>(5), {.batch_size = 2});
  plain.seek(2);
  int batches = 0;
  for (const std::vector<torch::data::Example<>>& batch : plain) {
    CHECK(batch.size() == 1);
    CHECK(batch[0].target.item<double>() == 4);
    ++batches;
  }
  CHECK(batches == 1);
  CHECK(code_of([] { make_loader(UnsizedDataset(), {}); }) == "data.unknown-size");
}

TEST_CASE("loader: the rows of an optimizer step are divided once, not for each of its batches") {
  constexpr std::int64_t kSteps = 512, kRows = 8 * kSteps;
  Numbers rows, lengths;
  for (std::int64_t row = 0; row < kRows; ++row) {
    rows.push_back(row);
    lengths.push_back(1 + row * row * 7919 % 1009);
  }
  const auto seconds_of = [](auto&& call) {
    const double start = processor_seconds();
    call();
    return processor_seconds() - start;
  };
  std::vector<Numbers> expected, batches;
  const auto once = seconds_of([&] { expected = rebalanced_batches(rows, lengths, 1, kSteps); });
  auto loader =
      make_loader(CountDataset{kRows}, {.batch_size = 8, .rebalance = Rebalance{lengths, kSteps}},
                  NumberCollator{});
  const auto whole_pass = seconds_of([&] { batches = pass(loader); });
  CHECK(batches == expected);
  CAPTURE(once);
  CHECK(whole_pass < kSteps / 4 * once);
  auto with_workers = make_loader(
      CountDataset{kRows},
      {.batch_size = 8, .num_workers = 3, .rebalance = Rebalance{lengths, /*steps=*/100}},
      NumberCollator{});
  auto without_workers =
      make_loader(CountDataset{kRows}, {.batch_size = 8, .rebalance = Rebalance{lengths, 100}},
                  NumberCollator{});
  CHECK(pass(with_workers) == pass(without_workers));
}

TEST_CASE("loader: the info of a batch says how many rows it has and whether it is the last") {
  auto map = make_loader(CountDataset{5}, {.batch_size = 2}, NumberCollator{});
  auto stream = make_loader(Stream{5}, {.batch_size = 2}, NumberCollator{});
  const auto check = [](auto& loader) {
    std::int64_t seen = 0;
    for (const auto& [batch, info] : with_info(loader)) {
      ++seen;
      CHECK(info.rows == static_cast<std::int64_t>(batch.size()));
      CHECK(info.real_rows == info.rows);
      CHECK(info.is_last == (seen == 3));
    }
    CHECK(seen == 3);
  };
  check(map);
  check(stream);
}

}  // namespace data_loader_test
