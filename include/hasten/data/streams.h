// File: hasten/data/streams.h
// Streams made from other streams: shuffled in a buffer, parts, transformed rows, and several
// streams as one.
//
//   struct Lines {
//     std::optional<at::Tensor> next() { return std::nullopt; }
//     void rewind(std::int64_t) {}
//   };
//   auto mixed = interleave_datasets({.probabilities = {0.7, 0.3}}, Lines(), Lines());
//   auto stream = shuffle_rows(take_rows(mixed, 100000), {.buffer_size = 1000});
//   auto loader = make_loader(stream, {.batch_size = 8});
//
// Each function takes streams (hasten/data/dataset.h) and returns a RowStream, or a
// ShardableRowStream if it can be divided into parts; copies of it share its position. Pass a
// std::shared_ptr to share a stream. The rows of an epoch depend only on the streams, the options
// and the epoch, so a loader that resumes gets the same rows as without the interruption.
//
// The result has skip(). The same rows follow after skipping rows as after reading them. map_rows,
// take_rows and skip_rows call the skip() of their stream, and call no function for a skipped row.
// shuffle_rows makes the draws of the skipped rows, and reads only those rows of its stream that
// are in its buffer afterwards. The other functions read rows to skip them.
//
// The result has shard() if its parts together have each row of the whole stream once. That holds
// for map_rows, filter_rows and shuffle_rows (which shuffles each part by itself) of a stream that
// has shard(), and for concatenate_datasets of such streams. The parts of take_rows, skip_rows and
// interleave_datasets would have different rows than the whole stream, so processes that read for
// themselves read the whole stream.
//
// Throws UsageError "data.option". Thread rule: one thread at a time.
// Source: IterableDataset of datasets 5.2: shuffle(buffer_size), take, skip, filter, map,
// concatenate_datasets and interleave_datasets. There, a resumed shuffle loses the rows that were
// in its buffer, and take, skip and interleave_datasets can be divided, but give different rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/data/dataset.h"
#include "hasten/data/detail/interleaving.h"
#include "hasten/data/detail/loader_source.h"

namespace hasten {

template <class Row>
class RowStream {
 public:
  // Reads from any stream with rows of this type.
  template <class Stream>
  explicit RowStream(std::shared_ptr<Stream> stream)
      : next_([stream] { return stream->next(); }),
        rewind_([stream](std::int64_t epoch) { stream->rewind(epoch); }) {
    if constexpr (requires { stream->skip(std::int64_t{}); })
      skip_ = [stream](std::int64_t rows) { stream->skip(rows); };
  }

  std::optional<Row> next() { return next_(); }
  void rewind(std::int64_t epoch) { rewind_(epoch); }
  // Skips this number of rows, or all remaining rows if there are fewer.
  void skip(std::int64_t rows) {
    if (skip_) return skip_(rows);
    while (rows > 0 && next()) --rows;
  }

 private:
  std::function<std::optional<Row>()> next_;
  std::function<void(std::int64_t)> rewind_;
  std::function<void(std::int64_t)> skip_;  // null if rows are read to skip them
};

// A RowStream that can be divided into parts.
template <class Row>
class ShardableRowStream : public RowStream<Row> {
 public:
  template <class Stream>
  explicit ShardableRowStream(std::shared_ptr<Stream> stream)
      : RowStream<Row>(stream), shard_([stream](std::int64_t num_shards, std::int64_t index) {
          stream->shard(num_shards, index);
        }) {}
  void shard(std::int64_t num_shards, std::int64_t index) { shard_(num_shards, index); }

 private:
  std::function<void(std::int64_t, std::int64_t)> shard_;
};

struct ShuffleOptions {
  std::int64_t buffer_size = 1000;  // Rows in memory, from which the next row is drawn.
  std::uint64_t seed = 42;
};

namespace detail {

template <class D>
concept IsStream = IterableDataset<DatasetOf<D>> && !MapDataset<DatasetOf<D>>;
template <class D>
using StreamRow = RowOf<DatasetOf<D>>;

template <class D>
concept IsShardable = requires(D& stream) {
  stream.shard(std::int64_t{}, std::int64_t{});
};

template <IsStream D>
auto row_stream(D stream) {
  using Row = StreamRow<D>;
  using Stream =
      std::conditional_t<IsShardable<DatasetOf<D>>, ShardableRowStream<Row>, RowStream<Row>>;
  return Stream(shared_dataset(std::move(stream)));
}
// The type that row_stream() returns.
template <class D>
using RowStreamOf = decltype(row_stream(std::declval<D>()));
template <class State>
auto as_stream(State state) {
  return row_stream(std::make_shared<State>(std::move(state)));
}

HASTEN_API void check_buffer(std::int64_t buffer_size);
HASTEN_API RowRandom shuffle_random(std::uint64_t seed, std::int64_t epoch);

// The slots of a shuffle buffer while skipped rows are drawn.
class HASTEN_API ShuffleDraws {
 public:
  // `filled` is the number of slots that have rows.
  ShuffleDraws(std::int64_t buffer_size, std::int64_t filled, RowRandom random);
  // Fills the buffer from the stream and draws a row, `rows` times.
  void draw(std::int64_t rows);

  // The content of a slot of the buffer: a row that was there before, or one that follows.
  struct Slot {
    bool is_from_stream = false;
    std::int64_t number = 0;  // its earlier slot, or its number in the stream from here on
  };
  const std::vector<Slot>& slots() const { return slots_; }
  // The rows that the stream must have for these draws.
  std::int64_t rows_read() const { return rows_read_; }
  const RowRandom& random() const { return random_; }

 private:
  std::int64_t buffer_size_, rows_read_ = 0;
  std::vector<Slot> slots_;
  RowRandom random_;
};

template <class Stream>
struct ShuffledStream {
  using Row = RowOf<Stream>;
  Stream stream;
  ShuffleOptions options;
  std::vector<Row> buffer = {};
  RowRandom random = shuffle_random(options.seed, 0);
  std::int64_t epoch = 0;
  std::int64_t returned = 0;  // rows of the epoch so far, including skipped ones

  void rewind(std::int64_t to_epoch) {
    epoch = to_epoch;
    stream.rewind(epoch);
    buffer.clear();
    random = shuffle_random(options.seed, epoch);
    returned = 0;
  }
  std::optional<Row> next() {
    while (static_cast<std::int64_t>(buffer.size()) < options.buffer_size) {
      auto row = stream.next();
      if (!row) break;
      buffer.push_back(std::move(*row));
    }
    if (buffer.empty()) return std::nullopt;
    const auto drawn =
        static_cast<std::size_t>(random.below(static_cast<std::int64_t>(buffer.size())));
    std::swap(buffer[drawn], buffer.back());
    std::optional<Row> row(std::move(buffer.back()));
    buffer.pop_back();
    ++returned;
    return row;
  }
  void skip(std::int64_t rows) {
    ShuffleDraws draws(options.buffer_size, static_cast<std::int64_t>(buffer.size()), random);
    draws.draw(rows);
    if (fill_slots(draws)) {
      random = draws.random();
      returned += rows;
      return;
    }
    // The stream ends before these draws do, and its last rows are drawn from a smaller buffer.
    rows += returned;
    rewind(epoch);
    while (rows > 0 && next()) --rows;
  }
  void shard(std::int64_t num_shards, std::int64_t index) requires IsShardable<Stream> {
    stream.shard(num_shards, index);
  }

 private:
  // Fills the buffer as the draws leave it. Returns false if the stream has too few rows for them.
  bool fill_slots(const ShuffleDraws& draws) {
    const auto& slots = draws.slots();
    std::vector<std::optional<Row>> filled(slots.size());
    std::map<std::int64_t, std::size_t> slot_of_row;  // rows of the stream, in its order
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (slots[i].is_from_stream) {
        slot_of_row[slots[i].number] = i;
      } else {
        filled[i] = std::move(buffer[static_cast<std::size_t>(slots[i].number)]);
      }
    }
    std::int64_t at = 0;
    for (const auto& [number, slot] : slot_of_row) {
      if (number > at) stream.skip(number - at);
      filled[slot] = stream.next();
      if (!filled[slot]) return false;
      at = number + 1;
    }
    if (at < draws.rows_read()) {  // reads the last row to check that the stream has enough
      stream.skip(draws.rows_read() - 1 - at);
      if (!stream.next()) return false;
    }
    buffer.clear();
    for (std::optional<Row>& row : filled) buffer.push_back(std::move(*row));
    return true;
  }
};

// Rows [first, end) of a stream.
template <class Row>
struct StreamPart {
  RowStream<Row> stream;
  std::int64_t first, end;
  std::int64_t at = 0;

  void rewind(std::int64_t epoch) {
    stream.rewind(epoch);
    at = 0;
  }
  std::optional<Row> next() {
    skip(0);
    return at++ < end ? stream.next() : std::nullopt;
  }
  void skip(std::int64_t rows) {
    const std::int64_t before = std::max<std::int64_t>(0, first - at),
                       to = at + before +
                            std::min(rows, std::max<std::int64_t>(0, end - at - before));
    if (to > at) stream.skip(to - at);
    at = to;
  }
};

template <class Stream, class Keep>
struct FilteredStream {
  Stream stream;
  Keep keep;

  void rewind(std::int64_t epoch) { stream.rewind(epoch); }
  std::optional<RowOf<Stream>> next() {
    for (;;) {
      auto row = stream.next();
      if (!row || keep(*row)) return row;
    }
  }
  void shard(std::int64_t num_shards, std::int64_t index) requires IsShardable<Stream> {
    stream.shard(num_shards, index);
  }
};

template <class Stream, class F>
struct MappedStream {
  Stream stream;
  F function;

  void rewind(std::int64_t epoch) { stream.rewind(epoch); }
  auto next()
      -> std::optional<std::remove_cvref_t<decltype(function(std::declval<RowOf<Stream>>()))>> {
    auto row = stream.next();
    if (!row) return std::nullopt;
    return function(std::move(*row));
  }
  void skip(std::int64_t rows) { stream.skip(rows); }
  void shard(std::int64_t num_shards, std::int64_t index) requires IsShardable<Stream> {
    stream.shard(num_shards, index);
  }
};

template <class Stream>
struct JoinedStream {
  std::vector<Stream> streams;
  std::size_t at = 0;

  void rewind(std::int64_t epoch) {
    for (Stream& stream : streams) stream.rewind(epoch);
    at = 0;
  }
  std::optional<RowOf<Stream>> next() {
    for (; at < streams.size(); ++at) {
      if (auto row = streams[at].next()) return row;
    }
    return std::nullopt;
  }
  void shard(std::int64_t num_shards, std::int64_t index) requires IsShardable<Stream> {
    for (Stream& stream : streams) stream.shard(num_shards, index);
  }
};

// Reads one row of each stream ahead, to know which of them has ended.
template <class Stream>
struct InterleavedStream {
  using Row = RowOf<Stream>;
  std::vector<Stream> streams;
  SourceChooser chooser;
  std::vector<std::optional<Row>> ahead = std::vector<std::optional<Row>>(streams.size());
  std::vector<bool> ended = std::vector<bool>(streams.size());
  std::int64_t epoch = 0;

  void rewind(std::int64_t to_epoch) {
    epoch = to_epoch;
    for (Stream& stream : streams) stream.rewind(epoch);
    chooser.restart(epoch);
    ahead.assign(streams.size(), std::nullopt);
    ended.assign(streams.size(), false);
  }
  std::optional<Row> next() {
    while (!chooser.done()) {
      const std::size_t source = chooser.next();
      if (ended[source]) {
        streams[source].rewind(epoch);
        ended[source] = false;
      }
      if (!ahead[source]) ahead[source] = streams[source].next();
      std::optional<Row> row = std::exchange(ahead[source], std::nullopt);
      if (row) ahead[source] = streams[source].next();
      if (!ahead[source]) {
        chooser.exhaust(source);
        ended[source] = true;
      }
      if (row) return row;
    }
    return std::nullopt;
  }
};

// Returns the streams as one type: with shard() if all of them have it.
template <class First, class... Rest>
auto all_streams(First first, Rest... rest) {
  using Row = StreamRow<First>;
  static_assert((std::is_same_v<Row, StreamRow<Rest>> && ...),
                "hasten: the streams have rows of different types");
  constexpr bool all_shardable =
      IsShardable<DatasetOf<First>> && (IsShardable<DatasetOf<Rest>> && ...);
  using Stream = std::conditional_t<all_shardable, ShardableRowStream<Row>, RowStream<Row>>;
  return std::vector<Stream>{Stream(shared_dataset(std::move(first))),
                             Stream(shared_dataset(std::move(rest)))...};
}

}  // namespace detail

// Draws each row from a buffer of the next rows, with different draws in each epoch.
template <detail::IsStream D>
auto shuffle_rows(D stream, const ShuffleOptions& options = {}) {
  detail::check_buffer(options.buffer_size);
  return detail::as_stream(detail::ShuffledStream<detail::RowStreamOf<D>>{
      detail::row_stream(std::move(stream)), options});
}

// Return the first `count` rows, and the rows after them.
template <detail::IsStream D>
auto take_rows(D stream, std::int64_t count) {
  return detail::as_stream(
      detail::StreamPart<detail::StreamRow<D>>{detail::row_stream(std::move(stream)), 0, count});
}
template <detail::IsStream D>
auto skip_rows(D stream, std::int64_t count) {
  return detail::as_stream(detail::StreamPart<detail::StreamRow<D>>{
      detail::row_stream(std::move(stream)), count, INT64_MAX});
}

// The rows for which keep(row) is true.
template <detail::IsStream D, class Keep>
auto filter_rows(D stream, Keep keep) {
  return detail::as_stream(detail::FilteredStream<detail::RowStreamOf<D>, Keep>{
      detail::row_stream(std::move(stream)), std::move(keep)});
}

// Replaces each row by function(row).
template <detail::IsStream D, class F>
auto map_rows(D stream, F function) {
  return detail::as_stream(detail::MappedStream<detail::RowStreamOf<D>, F>{
      detail::row_stream(std::move(stream)), std::move(function)});
}

// Joins streams with rows of the same type, one after the other.
template <detail::IsStream First, detail::IsStream... Rest>
auto concatenate_datasets(First first, Rest... rest) {
  auto streams = detail::all_streams(std::move(first), std::move(rest)...);
  using Stream = typename decltype(streams)::value_type;
  return detail::as_stream(detail::JoinedStream<Stream>{std::move(streams)});
}

// Takes a row from each stream in turn, or draws the stream of each row with the probabilities.
// first_exhausted ends after the last row of the first stream that ends, even in the middle of a
// round.
template <detail::IsStream First, detail::IsStream... Rest>
auto interleave_datasets(const InterleaveOptions& options, First first, Rest... rest) {
  auto streams = detail::all_streams(std::move(first), std::move(rest)...);
  using Stream = typename decltype(streams)::value_type;
  return detail::as_stream(detail::InterleavedStream<Stream>{
      std::move(streams), detail::SourceChooser(1 + sizeof...(Rest), options)});
}

}  // namespace hasten
