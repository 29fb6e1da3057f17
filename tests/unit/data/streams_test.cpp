#include "hasten/data/streams.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <span>
#include <stdexcept>

#include "hasten/accelerator.h"
#include "hasten/data/loader.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/data/error_of.h"

namespace streams_test {

using namespace hasten;

namespace {

using Numbers = std::vector<std::int64_t>;

struct CountingStream {
  std::int64_t first = 0, rows = 0, at = 0;
  std::optional<std::int64_t> next() {
    return at < rows ? std::optional(first + at++) : std::nullopt;
  }
  void rewind(std::int64_t) { at = 0; }
};

// Rows that need not be read to be skipped, and that can be divided into parts.
struct SeekableStream : CountingStream {
  explicit SeekableStream(std::int64_t count) { rows = count; }
  std::optional<std::int64_t> next() {
    ++reads;
    return CountingStream::next();
  }
  void skip(std::int64_t count) { at = std::min(rows, at + count); }
  void shard(std::int64_t num_shards, std::int64_t index) {
    const std::int64_t begin = total * index / num_shards;
    first = begin;
    rows = total * (index + 1) / num_shards - begin;
  }
  std::int64_t total = 0, reads = 0;
};

std::shared_ptr<SeekableStream> make_seekable(std::int64_t count) {
  auto stream = std::make_shared<SeekableStream>(count);
  stream->total = count;
  return stream;
}

std::int64_t tripled(std::int64_t row) { return 3 * row; }
template <class Stream>
constexpr bool has_parts(const Stream&) {
  return requires(Stream & stream) { stream.shard(std::int64_t{3}, std::int64_t{0}); };
}
bool is_even(std::int64_t row) { return row % 2 == 0; }

template <class Stream>
Numbers epoch_of(Stream stream, std::int64_t epoch = 0) {
  stream.rewind(epoch);
  Numbers rows;
  while (const auto row = stream.next()) rows.push_back(*row);
  return rows;
}

}  // namespace

TEST_CASE("streams: rows are taken, skipped, filtered and mapped") {
  const CountingStream ten{.rows = 10};
  CHECK(epoch_of(take_rows(ten, 3)) == Numbers{0, 1, 2});
  CHECK(epoch_of(skip_rows(ten, 8)) == Numbers{8, 9});
  CHECK(epoch_of(take_rows(skip_rows(ten, 8), 5)) == Numbers{8, 9});
  const auto is_odd = [](std::int64_t row) { return row % 2 == 1; };
  const auto tenfold = [](std::int64_t row) { return 10 * row; };
  CHECK(epoch_of(map_rows(filter_rows(ten, is_odd), tenfold)) == Numbers{10, 30, 50, 70, 90});
  const CountingStream two{.first = 100, .rows = 2};
  const auto both = concatenate_datasets(two, take_rows(ten, 1));
  CHECK(epoch_of(both) == Numbers{100, 101, 0});
  CHECK(epoch_of(both, 1) == Numbers{100, 101, 0});
}

TEST_CASE("streams: a buffer shuffles nearby rows, in a different order in each epoch") {
  const CountingStream rows{.rows = 1000};
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
  // With a buffer for all rows, each place is equally likely: the mean row of a place is the
  // middle.
  double sum = 0;
  for (std::int64_t epoch = 0; epoch < 400; ++epoch) {
    sum += static_cast<double>(
        epoch_of(shuffle_rows(CountingStream{.rows = 100}, {.buffer_size = 100}), epoch)[7]);
  }
  CHECK(sum / 400 == doctest::Approx(49.5).epsilon(0.1));
  CHECK(contains(error_of([&] { shuffle_rows(rows, {.buffer_size = 0}); }), "data.option"));
}

TEST_CASE("streams: rows are interleaved with probabilities, and each strategy ends them") {
  const CountingStream small{.rows = 300}, large{.first = 1000, .rows = 3000};
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
                                     CountingStream{}, CountingStream{.rows = 2})) ==
        Numbers{0, 1});
}

TEST_CASE("streams: the same rows follow after skip() as after reading") {
  const auto check = [](const char* name, const auto& make) {
    CAPTURE(name);
    const Numbers all = epoch_of(make(), 3);
    for (std::int64_t read : {0, 1, 7}) {
      for (const std::int64_t skipped : {0, 1, 2, 9, 10, 11, 35, 38, 39, 40, 41, 200}) {
        CAPTURE(read);
        CAPTURE(skipped);
        auto stream = make();
        stream.rewind(3);
        for (std::int64_t i = 0; i < read; ++i) stream.next();
        stream.skip(skipped);
        Numbers left;
        while (const auto row = stream.next()) left.push_back(*row);
        const auto from =
            std::min<std::size_t>(static_cast<std::size_t>(read + skipped), all.size());
        CHECK(left == Numbers(all.begin() + static_cast<std::ptrdiff_t>(from), all.end()));
        CHECK(epoch_of(stream, 3) == all);
      }
    }
  };
  check("map", [] { return map_rows(make_seekable(40), tripled); });
  check("filter", [] { return filter_rows(make_seekable(80), is_even); });
  check("take", [] { return take_rows(make_seekable(50), 40); });
  check("take more", [] { return take_rows(make_seekable(30), 40); });
  check("skip", [] { return skip_rows(make_seekable(50), 10); });
  check("concatenate", [] { return concatenate_datasets(make_seekable(15), make_seekable(25)); });
  check("interleave", [] {
    return interleave_datasets({.probabilities = {0.5, 0.5}}, make_seekable(40), make_seekable(40));
  });
  for (const std::int64_t buffer : {1, 2, 8, 39, 40, 41, 100}) {
    CAPTURE(buffer);
    check("shuffle", [&] { return shuffle_rows(make_seekable(40), {.buffer_size = buffer}); });
    check("shuffle without skip()",
          [&] { return shuffle_rows(CountingStream{.rows = 40}, {.buffer_size = buffer}); });
    check("twice", [&] {
      return map_rows(shuffle_rows(shuffle_rows(make_seekable(40), {.buffer_size = buffer}),
                                   {.buffer_size = 5, .seed = 7}),
                      tripled);
    });
  }
}

TEST_CASE("streams: skipped rows are not read, nor passed to a function") {
  const auto stream = make_seekable(1000000);
  std::int64_t calls = 0;
  const auto counted = [&](std::int64_t row) { return ++calls, row; };
  auto rows = map_rows(
      take_rows(shuffle_rows(skip_rows(stream, 1000), {.buffer_size = 16}), 900000), counted);
  rows.rewind(0);
  rows.skip(800000);
  CHECK(rows.next().has_value());
  CHECK(calls == 1);
  // The 15 rows in the buffer, the last one that was drawn from, and the next one.
  CHECK(stream->reads <= 17);
}

TEST_CASE("streams: parts of a stream have each of its rows once") {
  const auto check = [](const char* name, const auto& make) {
    CAPTURE(name);
    Numbers whole = epoch_of(make(), 1), parts;
    auto stream = make();
    for (std::int64_t index = 0; index < 3; ++index) {
      stream.shard(3, index);
      const Numbers part = epoch_of(stream, 1);
      CHECK(part.size() < whole.size() / 2);
      parts.insert(parts.end(), part.begin(), part.end());
    }
    std::sort(whole.begin(), whole.end());
    std::sort(parts.begin(), parts.end());
    CHECK(parts == whole);
  };
  check("map", [] { return map_rows(make_seekable(40), tripled); });
  check("filter", [] { return filter_rows(make_seekable(40), is_even); });
  check("shuffle", [] { return shuffle_rows(make_seekable(40), {.buffer_size = 7}); });
  check("concatenate", [] {
    return concatenate_datasets(make_seekable(15), map_rows(make_seekable(25), tripled));
  });
  // The parts of these would have other rows than the whole.
  CHECK(!has_parts(take_rows(make_seekable(40), 20)));
  CHECK(!has_parts(skip_rows(make_seekable(40), 20)));
  CHECK(!has_parts(interleave_datasets({}, make_seekable(4), make_seekable(4))));
  CHECK(!has_parts(shuffle_rows(take_rows(make_seekable(40), 20))));
  CHECK(!has_parts(map_rows(CountingStream{.rows = 4}, tripled)));
  CHECK(!has_parts(concatenate_datasets(make_seekable(4), take_rows(make_seekable(4), 2))));
}

TEST_CASE("streams: processes read their parts of a wrapped stream, or the whole of it") {
  const auto numbers = [](std::int64_t row) { return at::scalar_tensor(row, at::kLong); };
  const auto read = [&](const auto& make, bool expects_parts) {
    debug_launcher([&] {
      Accelerator accelerator({.cpu = true, .dataloader_config = {.dispatch_batches = false}});
      auto raw = make_loader(make(), {.batch_size = 4});
      auto [loader] = accelerator.prepare(raw);
      if (loader->reads_shard() != expects_parts) throw std::runtime_error("parts");
      std::multiset<std::int64_t> seen;
      for (const at::Tensor& batch : loader) {
        const at::Tensor all = accelerator.gather_for_metrics(batch);
        for (std::int64_t i = 0; i < all.numel(); ++i) seen.insert(all[i].item<std::int64_t>());
      }
      std::multiset<std::int64_t> expected;
      for (std::int64_t row = 0; row < 40; ++row) expected.insert(row);
      if (seen != expected) throw std::runtime_error("rows");
    });
  };
  read([&] { return map_rows(shuffle_rows(make_seekable(40), {.buffer_size = 6}), numbers); },
       true);
  read([&] { return map_rows(take_rows(make_seekable(60), 40), numbers); }, false);
}

namespace {

// Rows that cannot be copied, in parts that can have different lengths.
struct UniqueRows {
  using Row = std::unique_ptr<std::int64_t>;

  std::optional<Row> next() {
    if (at == end) return std::nullopt;
    return std::make_unique<std::int64_t>(at++);
  }
  void rewind(std::int64_t) { at = begin; }
  void shard(std::int64_t num_shards, std::int64_t index) {
    begin = index == 0 ? 0 : first_part;
    end = index == num_shards - 1 ? 16 : first_part;
  }
  std::int64_t first_part = 8, begin = 0, end = 16, at = 0;
};

at::Tensor numbers_in(std::span<const UniqueRows::Row> rows) {
  at::Tensor numbers = at::empty({static_cast<std::int64_t>(rows.size())}, at::kLong);
  for (std::size_t i = 0; i < rows.size(); ++i)
    numbers.mutable_data_ptr<std::int64_t>()[i] = *rows[i];
  return numbers;
}

}  // namespace

TEST_CASE("streams: a pass over rows that cannot be copied ends if their parts are equal") {
  const auto check = [](std::int64_t first_part, const std::string& expected) {
    debug_launcher([&] {
      Accelerator accelerator({.cpu = true, .dataloader_config = {.dispatch_batches = false}});
      auto raw = make_loader(UniqueRows{.first_part = first_part}, {.batch_size = 4}, numbers_in);
      auto [loader] = accelerator.prepare(raw);
      std::int64_t batches = 0;
      const std::string error = error_of([&] {
        for (const at::Tensor& batch : loader) batches += batch.numel() == 4 ? 1 : 0;
      });
      if (!contains(error, expected)) throw std::runtime_error(error);
      if (expected == "none" && batches != 2) throw std::runtime_error("batches");
    });
  };
  check(8, "none");
  check(4, "data.");  // a process needs rows to repeat in the second step
}

TEST_CASE("streams: a loader resumes inside of a shuffled, interleaved stream") {
  const auto loaded = [](LoaderState from) {
    const CountingStream one{.rows = 40}, other{.first = 100, .rows = 40};
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
