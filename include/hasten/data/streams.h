// File: hasten/data/streams.h
// Streams made of other streams: shuffled in a buffer, parts, transformed rows, and several as one.
//
//   struct Lines {
//     std::optional<at::Tensor> next() { return std::nullopt; }
//     void rewind(std::int64_t) {}
//   };
//   auto mixed = interleave_datasets({.probabilities = {0.7, 0.3}}, Lines(), Lines());
//   auto stream = shuffle_rows(take_rows(mixed, 100000), {.buffer_size = 1000});
//   auto loader = make_loader(stream, {.batch_size = 8});
//
// Each function takes streams (hasten/data/dataset.h) and returns a RowStream; copies of it share
// its position. Pass a std::shared_ptr to share a stream. The rows of an epoch follow from the
// streams, the options and the epoch, so a loader resumes by reading again what it has had.
// Throws UsageError "data.option". Thread rule: one thread at a time.
// Source: IterableDataset of datasets 5.2: shuffle(buffer_size), take, skip, filter, map,
// concatenate_datasets and interleave_datasets.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "hasten/base/export.h"
#include "hasten/data/dataset.h"
#include "hasten/data/interleaving.h"
#include "hasten/data/loader_source.h"

namespace hasten {

template <class Row>
class RowStream {
 public:
  // Reads from any stream with rows of this type.
  template <class Stream>
  explicit RowStream(std::shared_ptr<Stream> stream)
      : next_([stream] { return stream->next(); }),
        rewind_([stream](std::int64_t epoch) { stream->rewind(epoch); }) {}

  std::optional<Row> next() { return next_(); }
  void rewind(std::int64_t epoch) { rewind_(epoch); }

 private:
  std::function<std::optional<Row>()> next_;
  std::function<void(std::int64_t)> rewind_;
};

struct ShuffleOptions {
  std::int64_t buffer_size = 1000;  // Rows that are in memory, and among which the next is drawn.
  std::uint64_t seed = 42;
};

namespace detail {

template <class D>
concept IsStream = IterableDataset<DatasetOf<D>> && !MapDataset<DatasetOf<D>>;
template <class D>
using StreamRow = RowOf<DatasetOf<D>>;

template <IsStream D>
RowStream<StreamRow<D>> row_stream(D stream) {
  return RowStream<StreamRow<D>>(shared_dataset(std::move(stream)));
}
template <class State>
auto as_stream(State state) {
  return row_stream(std::make_shared<State>(std::move(state)));
}

HASTEN_API void check_buffer(std::int64_t buffer_size);
HASTEN_API RowRandom shuffle_random(std::uint64_t seed, std::int64_t epoch);

template <class Row>
struct ShuffledStream {
  RowStream<Row> stream;
  ShuffleOptions options;
  std::vector<Row> buffer = {};
  RowRandom random = shuffle_random(options.seed, 0);

  void rewind(std::int64_t epoch) {
    stream.rewind(epoch);
    buffer.clear();
    random = shuffle_random(options.seed, epoch);
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
    return row;
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
    for (; at < first; ++at) {
      if (!stream.next()) return std::nullopt;
    }
    return at++ < end ? stream.next() : std::nullopt;
  }
};

template <class Row, class Keep>
struct FilteredStream {
  RowStream<Row> stream;
  Keep keep;

  void rewind(std::int64_t epoch) { stream.rewind(epoch); }
  std::optional<Row> next() {
    for (;;) {
      auto row = stream.next();
      if (!row || keep(*row)) return row;
    }
  }
};

template <class Row, class F>
struct MappedStream {
  RowStream<Row> stream;
  F function;

  void rewind(std::int64_t epoch) { stream.rewind(epoch); }
  auto next() -> std::optional<std::remove_cvref_t<decltype(function(std::declval<Row>()))>> {
    auto row = stream.next();
    if (!row) return std::nullopt;
    return function(std::move(*row));
  }
};

template <class Row>
struct JoinedStream {
  std::vector<RowStream<Row>> streams;
  std::size_t at = 0;

  void rewind(std::int64_t epoch) {
    for (RowStream<Row>& stream : streams) stream.rewind(epoch);
    at = 0;
  }
  std::optional<Row> next() {
    for (; at < streams.size(); ++at) {
      if (auto row = streams[at].next()) return row;
    }
    return std::nullopt;
  }
};

// Reads one row of each stream ahead, to know which of them has ended.
template <class Row>
struct InterleavedStream {
  std::vector<RowStream<Row>> streams;
  SourceChooser chooser;
  std::vector<std::optional<Row>> ahead = std::vector<std::optional<Row>>(streams.size());
  std::vector<bool> ended = std::vector<bool>(streams.size());
  std::int64_t epoch = 0;

  void rewind(std::int64_t to_epoch) {
    epoch = to_epoch;
    for (RowStream<Row>& stream : streams) stream.rewind(epoch);
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

template <class First, class... Rest>
std::vector<RowStream<StreamRow<First>>> all_streams(First first, Rest... rest) {
  static_assert((std::is_same_v<StreamRow<First>, StreamRow<Rest>> && ...),
                "hasten: the streams have rows of different types");
  return {row_stream(std::move(first)), row_stream(std::move(rest))...};
}

}  // namespace detail

// Draws each row from a buffer of the next ones, with other draws in each epoch.
template <detail::IsStream D>
auto shuffle_rows(D stream, const ShuffleOptions& options = {}) {
  detail::check_buffer(options.buffer_size);
  return detail::as_stream(
      detail::ShuffledStream<detail::StreamRow<D>>{detail::row_stream(std::move(stream)), options});
}

// The first `count` rows, and those after them.
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
  return detail::as_stream(detail::FilteredStream<detail::StreamRow<D>, Keep>{
      detail::row_stream(std::move(stream)), std::move(keep)});
}

// Each row as function(row).
template <detail::IsStream D, class F>
auto map_rows(D stream, F function) {
  return detail::as_stream(detail::MappedStream<detail::StreamRow<D>, F>{
      detail::row_stream(std::move(stream)), std::move(function)});
}

// Streams with rows of one type, one after the other.
template <detail::IsStream First, detail::IsStream... Rest>
auto concatenate_datasets(First first, Rest... rest) {
  return detail::as_stream(detail::JoinedStream<detail::StreamRow<First>>{
      detail::all_streams(std::move(first), std::move(rest)...)});
}

// Their rows by turns, or drawn with probabilities. first_exhausted ends after the last row of the
// first stream that ends, in the middle of a round.
template <detail::IsStream First, detail::IsStream... Rest>
auto interleave_datasets(const InterleaveOptions& options, First first, Rest... rest) {
  return detail::as_stream(detail::InterleavedStream<detail::StreamRow<First>>{
      detail::all_streams(std::move(first), std::move(rest)...),
      detail::SourceChooser(1 + sizeof...(Rest), options)});
}

}  // namespace hasten
