#include "hasten/data/streams.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "hasten/data/loader.h"
#include "unit/data/error_of.h"

namespace streams_test {

using namespace hasten;

namespace {

using Numbers = std::vector<std::int64_t>;

struct Counting {
  std::int64_t first = 0, rows = 0, at = 0;
  std::optional<std::int64_t> next() {
    return at < rows ? std::optional(first + at++) : std::nullopt;
  }
  void rewind(std::int64_t) { at = 0; }
};

template <class Stream>
Numbers epoch_of(Stream stream, std::int64_t epoch = 0) {
  stream.rewind(epoch);
  Numbers rows;
  while (const auto row = stream.next()) rows.push_back(*row);
  return rows;
}

}  // namespace

TEST_CASE("streams: parts, filters and functions of a stream's rows") {
  const Counting ten{.rows = 10};
  CHECK(epoch_of(take_rows(ten, 3)) == Numbers{0, 1, 2});
  CHECK(epoch_of(skip_rows(ten, 8)) == Numbers{8, 9});
  CHECK(epoch_of(take_rows(skip_rows(ten, 8), 5)) == Numbers{8, 9});
  const auto is_odd = [](std::int64_t row) { return row % 2 == 1; };
  const auto tenfold = [](std::int64_t row) { return 10 * row; };
  CHECK(epoch_of(map_rows(filter_rows(ten, is_odd), tenfold)) == Numbers{10, 30, 50, 70, 90});
  const Counting two{.first = 100, .rows = 2};
  const auto both = concatenate_datasets(two, take_rows(ten, 1));
  CHECK(epoch_of(both) == Numbers{100, 101, 0});
  CHECK(epoch_of(both, 1) == Numbers{100, 101, 0});
}

TEST_CASE("streams: a buffer shuffles rows near each other, in another way each epoch") {
  const Counting rows{.rows = 1000};
  const auto shuffled = [&](std::uint64_t seed, std::int64_t epoch) {
    return epoch_of(shuffle_rows(rows, {.buffer_size = 50, .seed = seed}), epoch);
  };
  const Numbers order = shuffled(1, 0);
  CHECK(std::set<std::int64_t>(order.begin(), order.end()).size() == 1000);
  for (std::size_t at = 0; at < order.size(); ++at)
    CHECK(order[at] <
          static_cast<std::int64_t>(at) + 50);  // no row comes before it is in the buffer
  CHECK(!std::is_sorted(order.begin(), order.end()));
  CHECK(shuffled(1, 0) == order);
  CHECK(shuffled(1, 1) != order);
  CHECK(shuffled(2, 0) != order);
  CHECK(epoch_of(shuffle_rows(rows, {.buffer_size = 1})) == epoch_of(rows));
  // With a buffer for all rows, each place is equally likely: the mean row of a place is the middle.
  double sum = 0;
  for (std::int64_t epoch = 0; epoch < 400; ++epoch) {
    sum += static_cast<double>(
        epoch_of(shuffle_rows(Counting{.rows = 100}, {.buffer_size = 100}), epoch)[7]);
  }
  CHECK(sum / 400 == doctest::Approx(49.5).epsilon(0.1));
  CHECK(contains(error_of([&] { shuffle_rows(rows, {.buffer_size = 0}); }), "data.option"));
}

TEST_CASE("streams: interleaved with probabilities, and ended by each strategy") {
  const Counting small{.rows = 300}, large{.first = 1000, .rows = 3000};
  const auto drawn = [&](StoppingStrategy strategy, std::int64_t epoch) {
    return epoch_of(
        interleave_datasets({.probabilities = {0.25, 0.75}, .stopping_strategy = strategy}, small,
                            large),
        epoch);
  };
  const Numbers first = drawn(StoppingStrategy::first_exhausted, 0);
  CHECK(first.back() == 299);
  CHECK(static_cast<double>(first.size()) == doctest::Approx(1200).epsilon(0.1));
  CHECK(drawn(StoppingStrategy::first_exhausted, 1) != first);
  const Numbers all = drawn(StoppingStrategy::all_exhausted, 0);
  CHECK(all.back() == 3999);
  CHECK(std::count(all.begin(), all.end(), 0) > 1);
  const Numbers once = drawn(StoppingStrategy::all_exhausted_without_replacement, 0);
  CHECK(once.size() == 3300);
  CHECK(std::set<std::int64_t>(once.begin(), once.end()).size() == 3300);
  CHECK(epoch_of(interleave_datasets({.stopping_strategy = StoppingStrategy::all_exhausted},
                                     Counting{}, Counting{.rows = 2})) == Numbers{0, 1});
}

TEST_CASE("streams: a loader resumes inside of a shuffled, interleaved stream") {
  const auto loaded = [](LoaderState from) {
    const Counting one{.rows = 40}, other{.first = 100, .rows = 40};
    auto stream =
        map_rows(shuffle_rows(interleave_datasets({.probabilities = {0.5, 0.5}}, one, other),
                              {.buffer_size = 8}),
                 [](std::int64_t row) { return at::scalar_tensor(row, at::kLong); });
    auto loader = make_loader(stream, {.batch_size = 4});
    loader.load_state(from);
    Numbers rows;
    for (const at::Tensor& batch : loader) {
      for (std::int64_t row = 0; row < batch.numel(); ++row)
        rows.push_back(batch[row].item<std::int64_t>());
    }
    return rows;
  };
  const Numbers all = loaded({.epoch = 1, .rows = 0});
  REQUIRE(all.size() > 40);
  CHECK(loaded({.epoch = 1, .rows = 12}) == Numbers(all.begin() + 12, all.end()));
  CHECK(loaded({.epoch = 2, .rows = 0}) != all);
}

}  // namespace streams_test
