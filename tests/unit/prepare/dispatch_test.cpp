// Loaders that rank 0 reads for all ranks, streams across processes, and loader states that another
// number of processes loads. Each process is a fork of this one.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "hasten/accelerator.h"
#include "hasten/data/loader.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/code_of.h"
#include "unit/prepare/distributed_fixtures.h"

namespace prepare_dispatch_test {

using namespace hasten;
using namespace hasten::forked;
using namespace hasten::distributed_fixtures;

namespace {

using Rows = std::vector<std::int64_t>;
using Texts = std::pair<TensorDict, std::vector<std::string>>;

struct Row {
  std::int64_t number;
};
struct AsTexts {
  Texts operator()(std::span<const Row> rows) const {
    std::vector<std::string> texts;
    Rows numbers;
    for (const Row& row : rows) {
      numbers.push_back(row.number);
      texts.push_back(str("row ", row.number));
    }
    return {{{"numbers", at::tensor(numbers, at::kLong)}}, texts};
  }
};
struct Count {
  std::int64_t rows;
  std::shared_ptr<std::atomic<std::int64_t>> reads = std::make_shared<std::atomic<std::int64_t>>();
  std::int64_t fails_at = -1;
  std::int64_t size() const { return rows; }
  Row get(std::int64_t index) const {
    ++*reads;
    if (index == fails_at) throw DataError("test.broken", {.what = "broken", .got = "row 13"});
    return {index};
  }
};
struct Stream {
  std::int64_t rows;
  std::shared_ptr<std::atomic<std::int64_t>> reads = std::make_shared<std::atomic<std::int64_t>>();
  std::int64_t fails_at = -1;
  std::int64_t at = 0;
  std::optional<Row> next() {
    if (at == rows) return std::nullopt;
    ++*reads;
    if (at == fails_at) throw std::runtime_error("the line is cut");
    return Row{at++};
  }
  void rewind(std::int64_t) { at = 0; }
};

Rows rows_in(const Texts& batch) {
  const at::Tensor numbers = batch.first.at("numbers");
  Rows rows;
  for (std::int64_t i = 0; i < numbers.size(0); ++i) {
    rows.push_back(numbers[i].item<std::int64_t>());
    require(batch.second[static_cast<std::size_t>(i)] == str("row ", rows.back()),
            "the text of another row");
  }
  return rows;
}

std::vector<Rows> pass(auto& loader) {
  std::vector<Rows> all;
  for (auto& batch : loader) all.push_back(rows_in(batch));
  return all;
}

AcceleratorOptions dispatch_options(std::optional<bool> dispatch, bool even = true,
                                    bool split = false) {
  return {.dataloader_config = {
              .split_batches = split, .dispatch_batches = dispatch, .even_batches = even}};
}

}  // namespace

TEST_CASE("dispatch: every process has the batches that it would have read itself") {
  for (const std::int64_t workers : {0, 3}) {
    debug_launcher(
        [=] {
          Accelerator each(dispatch_options(false)), first(dispatch_options(true));
          const LoaderOptions options{.batch_size = 4, .shuffle = true, .num_workers = workers};
          Count own{37}, sent{37};
          auto raw_own = make_loader(own, options, AsTexts{});
          auto raw_sent = make_loader(sent, options, AsTexts{});
          auto [read] = each.prepare(raw_own);
          auto [received] = first.prepare(raw_sent);
          require(received.size() == read.size(), "the numbers of batches differ");
          for (int epoch = 0; epoch < 3; ++epoch)
            require(pass(received) == pass(read), str("the batches of epoch ", epoch));
          require((*sent.reads > 0) == (first.group().rank() == 0), "only rank 0 reads");
        },
        3);
  }
}

TEST_CASE("dispatch: streams are sent from rank 0, or read by every process if requested") {
  debug_launcher(
      [] {
        for (const std::int64_t workers : {0, 2}) {
          std::vector<std::vector<Rows>> seen;
          const std::vector<Accelerator> accelerators = [] {
            std::vector<Accelerator> all;
            for (const auto dispatch :
                 {std::optional<bool>(), std::optional(true), std::optional(false)})
              all.emplace_back(dispatch_options(dispatch));
            return all;
          }();
          for (Accelerator accelerator : accelerators) {
            Stream stream{13};
            auto raw = make_loader(stream, {.batch_size = 2, .num_workers = workers}, AsTexts{});
            auto [loader] = accelerator.prepare(raw);
            seen.push_back(pass(loader));
            require(pass(loader) == seen.back(), "the next pass differs");
            require(code_of([&] { loader.size(); }) == "data.unknown-size",
                    "the length of a stream is known");
          }
          const std::int64_t rank = accelerators[0].group().rank();
          const std::vector<Rows> expected = rank == 0 ? std::vector<Rows>{{0, 1}, {6, 7}, {12, 0}}
                                             : rank == 1
                                                 ? std::vector<Rows>{{2, 3}, {8, 9}, {1, 2}}
                                                 : std::vector<Rows>{{4, 5}, {10, 11}, {3, 4}};
          for (const auto& batches : seen)
            require(batches == expected, "the last step is not filled up");
        }
      },
      3);
}

TEST_CASE("dispatch: processes that read streams that differ get an error at the same batch") {
  for (const std::int64_t workers : {0, 2}) {
    debug_launcher(
        [=] {
          Accelerator accelerator(dispatch_options(false));
          const std::int64_t rank = accelerator.group().rank();
          const auto batches_before = [&](Stream stream, const std::string& code) {
            auto raw = make_loader(stream, {.batch_size = 2, .num_workers = workers}, AsTexts{});
            auto [loader] = accelerator.prepare(raw);
            std::int64_t batches = 0;
            require(code_of([&] {
                      for ([[maybe_unused]] auto& batch : loader) ++batches;
                    }) == code,
                    "expected " + code);
            return batches;
          };
          // Steps of six rows: the second stream ends in the third step.
          require(batches_before({rank == 1 ? 14 : 19}, "data.streams-differ") == 2, "14 rows");
          require(batches_before({rank == 1 ? 12 : 19}, "data.streams-differ") == 2, "12 rows");
          require(batches_before({rank == 1 ? 0 : 19}, "data.streams-differ") == 0, "no rows");
          Stream failing{19};
          if (rank == 2) failing.fails_at = 7;
          require(batches_before(failing, rank == 2 ? "data.batch" : "data.streams-differ") == 1,
                  "a stream that fails");
          failing.fails_at = 7;
          require(batches_before(failing, "data.batch") == 1, "a stream that fails everywhere");
        },
        3);
  }
}

TEST_CASE("dispatch: an incomplete last step has smaller batches, and none for some processes") {
  debug_launcher(
      [] {
        for (const auto dispatch : {true, false}) {
          Accelerator accelerator(dispatch_options(dispatch, /*even=*/false));
          const std::int64_t rank = accelerator.group().rank();
          auto raw = make_loader(Stream{9}, {.batch_size = 2}, AsTexts{});
          auto map = make_loader(Count{9}, {.batch_size = 2}, AsTexts{});
          auto [stream, loader] = accelerator.prepare(raw, map);
          const std::vector<Rows> expected = rank == 0   ? std::vector<Rows>{{0, 1}, {6, 7}}
                                             : rank == 1 ? std::vector<Rows>{{2, 3}, {8}}
                                                         : std::vector<Rows>{{4, 5}};
          require(pass(stream) == expected, "the batches of a stream differ");
          require(pass(loader) == expected, "the batches of a dataset differ");
          require(loader.size() == (rank == 2 ? 1 : 2), "the number of batches is wrong");
          int steps = 0;
          for (auto it = loader.begin(); it != loader.end(); ++it) {
            ++steps;
            require(loader->is_last() == (steps == (rank == 2 ? 1 : 2)),
                    "the last batch of this rank");
            require(it.info().is_last == (steps == 2), "the last batch of all ranks");
          }
          require(loader->epoch() == 2 && stream->epoch() == 1, "all are in the next epoch");
        }
      },
      3);
}

TEST_CASE("dispatch: the reader's exception is thrown in every process, at the same batch") {
  const auto check = [](const auto& dataset, std::int64_t workers, const std::string& code,
                        const std::string& expected_text) {
    debug_launcher(
        [&] {
          Accelerator accelerator(dispatch_options(true));
          auto raw = make_loader(dataset, {.batch_size = 2, .num_workers = workers}, AsTexts{});
          auto [loader] = accelerator.prepare(raw);
          int batches = 0;
          try {
            for ([[maybe_unused]] auto& batch : loader) ++batches;
          } catch (const DataError& error) {
            require(error.code() == code, error.code());
            require(std::string(error.what()).find(expected_text) != std::string::npos,
                    error.what());
            require(batches == 2, str(batches, " batches before it"));
            return;
          }
          throw std::runtime_error("nothing was thrown");
        },
        3);
  };
  check(Count{.rows = 30, .fails_at = 13}, 0, "test.broken", "broken: got row 13");
  check(Count{.rows = 30, .fails_at = 13}, 2, "test.broken", "(rows 12, 13)");
  check(Stream{.rows = 30, .fails_at = 13}, 0, "data.batch", "the line is cut");
  debug_launcher([] {  // also if nothing can be read at all
    Accelerator accelerator;
    auto raw = make_loader(Stream{accelerator.group().rank() == 0 ? 0 : 5}, {}, AsTexts{});
    auto [loader] = accelerator.prepare(raw);
    require(code_of([&] { pass(loader); }) == "data.empty", "an empty stream");
  });
}

TEST_CASE("dispatch: a part that cannot be sent is an error everywhere, at the same batch") {
  struct AsSparse {
    TensorDict operator()(std::span<const Row> rows) const {
      const at::Tensor dense = torch::ones({2, 2});
      return {{"x", rows.front().number >= 20 ? dense.to_sparse() : dense}};
    }
  };
  debug_launcher(
      [] {
        Accelerator accelerator(dispatch_options(true));
        auto raw = make_loader(Count{60}, {.batch_size = 2}, AsSparse{});
        auto [loader] = accelerator.prepare(raw);
        int batches = 0;
        const std::string code = code_of([&] {
          for ([[maybe_unused]] auto& batch : loader) ++batches;
        });
        require(code == "data.carry", "got " + code);
        require(batches == 3, str(batches, " batches before it"));
        accelerator.wait_for_everyone();
      },
      3);
}

TEST_CASE("dispatch: a pass may end early if processes have different numbers of workers") {
  for (const bool first_has_them : {true, false}) {
    debug_launcher(
        [=] {
          Accelerator accelerator(dispatch_options(true));
          const bool first = accelerator.is_main_process();
          auto raw = make_loader(Count{400},
                                 {.batch_size = 2, .num_workers = first == first_has_them ? 4 : 0},
                                 AsTexts{});
          auto [loader] = accelerator.prepare(raw);
          for (int round = 0; round < 3; ++round) {
            int batches = 0;
            for ([[maybe_unused]] auto& batch : loader) {
              if (++batches == 2) break;
            }
            accelerator.wait_for_everyone();
          }
          require(pass(loader).size() == 100, "a whole pass after that");
        },
        2);
  }
}

TEST_CASE("dispatch: a pass may end early, and rank 0 reads ahead") {
  debug_launcher(
      [] {
        Accelerator accelerator;
        Stream stream{1000};
        auto raw = make_loader(stream, {.batch_size = 2, .prefetch_factor = 3}, AsTexts{});
        auto [loader] = accelerator.prepare(raw);
        const std::int64_t rank = accelerator.group().rank();
        for (int left_at = 0; left_at < 5; ++left_at) {
          const std::int64_t before = *stream.reads;
          int batch = 0;
          for (auto& each : loader) {
            require(rows_in(each).front() == 6 * batch + 2 * rank, "the pass does not start again");
            if (batch++ == left_at) break;
          }
          // One current batch, one to know whether it is the last, and three ahead.
          const std::int64_t steps = left_at + 1 + 1 + 3;
          require(*stream.reads - before == (rank == 0 ? 6 * steps : 0), "steps read");
          require(loader->epoch() == 0, "still the first epoch");
        }
      },
      3);
}

TEST_CASE("dispatch: processes that leave a pass at different batches meet or get an error") {
  debug_launcher([] {
    Accelerator accelerator;
    const std::int64_t rank = accelerator.group().rank();
    auto raw = make_loader(Stream{100}, {.batch_size = 2}, AsTexts{});
    auto [loader] = accelerator.prepare(raw);
    int batches = 0;
    for ([[maybe_unused]] auto& batch : loader) {
      if (++batches == (rank == 0 ? 4 : 2)) break;
    }
    require(pass(loader).size() == 25, "a whole pass after that");
  });
  std::string error_text;
  try {
    debug_launcher([] {
      Accelerator accelerator;
      auto raw = make_loader(Stream{100}, {.batch_size = 2}, AsTexts{});
      auto [loader] = accelerator.prepare(raw);
      int batches = 0;
      for ([[maybe_unused]] auto& batch : loader) {
        if (accelerator.group().rank() == 0 && ++batches == 2) break;
      }
      pass(loader);
    });
  } catch (const RankError& error) {
    CHECK(error.rank == 1);
    error_text = error.what();
  }
  CAPTURE(error_text);
  CHECK(error_text.find("rank 1 and rank 0, which reads for it, are at different batches") !=
        std::string::npos);
}

TEST_CASE("dispatch: batches of a type that cannot be sent are refused before anything is sent") {
  struct Opaque {
    std::shared_ptr<int> pointer;
  };
  struct AsOpaque {
    Opaque operator()(std::span<const Row>) const { return {}; }
  };
  debug_launcher([] {
    Accelerator accelerator;
    auto raw = make_loader(Stream{4}, {}, AsOpaque{});
    require(code_of([&] { accelerator.prepare(raw); }) == "data.share", "no way to send it");
    Accelerator each(dispatch_options(false));
    auto own = make_loader(Stream{4}, {}, AsOpaque{});
    each.prepare(own);
  });
}

TEST_CASE("dispatch: the error for different loaders says what differs and where") {
  const auto check_difference_reported =
      [](const std::function<void(Accelerator&, std::int64_t)>& prepare, const std::string& code,
         const std::string& expected_text) {
        debug_launcher(
            [&] {
              Accelerator accelerator;
              try {
                prepare(accelerator, accelerator.group().rank());
              } catch (const UsageError& error) {
                require(std::string(error.what()).find(expected_text) != std::string::npos,
                        error.what());
                require(code.empty() || error.code() == code, error.code());
                return;
              }
              throw std::runtime_error("nothing was thrown");
            },
            3);
      };
  check_difference_reported(
      [](Accelerator& accelerator, std::int64_t rank) {
        auto raw = make_loader(Count{rank == 2 ? 41 : 40}, {.batch_size = 4}, AsTexts{});
        accelerator.prepare(raw);
      },
      "data.loaders-differ",
      "differs on rank 2: got a loader of 41 rows, batch_size 4, seed 42, expected a loader of "
      "40 rows, batch_size 4, seed 42, as on rank 0");
  check_difference_reported(
      [](Accelerator& accelerator, std::int64_t rank) {
        auto raw = make_loader(Count{40}, {.shuffle = rank != 1}, AsTexts{});
        accelerator.prepare(raw);
      },
      "data.loaders-differ", "differs on rank 1");
  check_difference_reported(
      [](Accelerator& accelerator, std::int64_t rank) {
        auto raw = make_loader(Stream{40}, {.batch_size = 2 + rank}, AsTexts{});
        accelerator.prepare(raw);
      },
      "data.loaders-differ", "batch_size 3");
  check_difference_reported(
      [](Accelerator& accelerator, std::int64_t rank) {
        std::vector<at::Tensor> batches(static_cast<std::size_t>(5 + rank), torch::ones({1}));
        accelerator.prepare(batches);
      },
      "data.loaders-differ", "a loader of 6 batches, read by every process");
  check_difference_reported(  // prepared in another order
      [](Accelerator& accelerator, std::int64_t rank) {
        auto raw = make_loader(Count{40}, {}, AsTexts{});
        Sequential net = small_model();
        if (rank == 1) accelerator.prepare(raw);
        accelerator.prepare(net);
        if (rank != 1) accelerator.prepare(raw);
      },
      "", "differs on rank 1: got a loader of 40 rows");
}

TEST_CASE("dispatch: batches smaller than the number of processes are refused with a hint") {
  debug_launcher(
      [] {
        Accelerator splitting(dispatch_options(std::nullopt, true, /*split=*/true));
        auto small = make_loader(Count{40}, {.batch_size = 2}, AsTexts{});
        try {
          splitting.prepare(small);
          throw std::runtime_error("nothing was thrown");
        } catch (const ConfigError& error) {
          require(error.code() == "data.share", error.code());
          require(error.hint().find("set batch_size = 3") != std::string::npos, error.what());
        }
        Accelerator plain;
        auto few = make_loader(Count{2}, {.batch_size = 1}, AsTexts{});  // there may be fewer rows
        auto [loader] = plain.prepare(few);
        require(pass(loader).size() == 1, "a batch for each");
      },
      3);
}

TEST_CASE("loader state: another number of processes continues at the same row") {
  constexpr std::int64_t kRows = 29;
  auto whole = make_loader(Count{kRows}, {.batch_size = 1, .shuffle = true}, AsTexts{});
  Rows order, next;
  for (auto& batch : whole) order.push_back(rows_in(batch).front());
  for (auto& batch : whole) next.push_back(rows_in(batch).front());
  // The state that each number of processes saves after some batches of 2.
  for (const std::int64_t batches : {0, 1, 3, 4}) {
    std::vector<LoaderState> states;
    for (const std::int64_t world : {1, 2, 3})
      states.push_back({.seed = 42, .epoch = 0, .batch = batches, .rows = batches * 2 * world});
    for (const std::int64_t world : {1, 2, 3, 4}) {
      debug_launcher(
          [&] {
            Accelerator accelerator(dispatch_options(batches % 2 == 0));
            const std::int64_t count = accelerator.group().size();
            if (count <= 3) {  // these states are saved
              auto raw = make_loader(Count{kRows}, {.batch_size = 2, .shuffle = true}, AsTexts{});
              auto [loader] = accelerator.prepare(raw);
              std::int64_t seen = 0;
              if (batches > 0) {
                for ([[maybe_unused]] auto& batch : loader) {
                  if (++seen == batches) break;
                }
              }
              require(loader->state() == states[static_cast<std::size_t>(count - 1)], "the state");
            }
            for (const LoaderState& state : states) {
              for (const bool before : {true, false}) {
                auto raw = make_loader(Count{kRows}, {.batch_size = 2, .shuffle = true}, AsTexts{});
                if (before) raw.load_state(state);
                auto [loader] = accelerator.prepare(raw);
                if (!before) raw.load_state(state);
                Rows got;
                std::int64_t steps = 0;
                for (auto& batch : loader) {
                  ++steps;
                  const at::Tensor all = accelerator.gather_for_metrics(batch.first.at("numbers"));
                  for (std::int64_t i = 0; i < all.size(0); ++i)
                    got.push_back(all[i].item<std::int64_t>());
                }
                const Rows expected(order.begin() + state.rows, order.end());
                require(got == expected, str("from row ", state.rows, " on ", count, " processes"));
                require(
                    loader->state() == LoaderState{.seed = 42, .epoch = 1, .batch = 0, .rows = 0},
                    "and then the next epoch");
                const auto again = pass(loader);
                require(again.front().front() ==
                            next[static_cast<std::size_t>(2 * accelerator.group().rank())],
                        "from its start");
              }
            }
          },
          world);
    }
  }
}

TEST_CASE("loader state: streams continue at their row, and positions out of range are refused") {
  debug_launcher([] {
    Accelerator accelerator;
    auto raw = make_loader(Stream{11}, {.batch_size = 2}, AsTexts{});
    raw.load_state({.seed = 42, .epoch = 0, .batch = 1, .rows = 6});  // of three processes
    auto [loader] = accelerator.prepare(raw);
    const std::vector<Rows> expected = accelerator.group().rank() == 0
                                           ? std::vector<Rows>{{6, 7}, {10, 0}}
                                           : std::vector<Rows>{{8, 9}, {1, 2}};
    require(pass(loader) == expected, "rows that fill up are still the epoch's first");
    raw.load_state({.seed = 42, .epoch = 0, .batch = 1, .rows = 12});
    require(code_of([&] { pass(loader); }) == "data.state", "past the end");
    auto map = make_loader(Count{11}, {.batch_size = 2}, AsTexts{});
    auto [other] = accelerator.prepare(map);
    require(code_of([&] { map.load_state({.rows = 12}); }) == "data.state", "past the end");
    map.load_state({.seed = 42, .epoch = 3, .rows = 11});
    require(other->epoch() == 4, "the end of an epoch is the start of the next");
  });
}

TEST_CASE("randomness: a row and a batch draw the same numbers in any process") {
  struct Keys {
    std::int64_t size() const { return 24; }
    std::uint64_t get(std::int64_t, const RowContext& context) const { return context.key(); }
  };
  struct AsPairs {
    std::pair<std::vector<std::uint64_t>, std::uint64_t> operator()(
        std::span<const std::uint64_t> keys, const BatchContext& context) const {
      return {{keys.begin(), keys.end()}, context.key()};
    }
  };
  // One process: the keys of every batch and of its rows.
  std::vector<std::vector<std::pair<std::vector<std::uint64_t>, std::uint64_t>>> epochs(2);
  auto alone = make_loader(Keys{}, {.batch_size = 2, .shuffle = true}, AsPairs{});
  for (auto& epoch : epochs) {
    for (const auto& batch : alone) epoch.push_back(batch);
  }
  std::set<std::uint64_t> different;
  for (const auto& epoch : epochs) {
    for (const auto& [rows, own] : epoch) {
      different.insert(rows.begin(), rows.end());
      different.insert(own);
    }
  }
  CHECK(different.size() == 2 * (24 + 12));
  for (const bool dispatch : {false, true}) {
    for (const std::int64_t workers : {0, 2}) {
      debug_launcher(
          [&] {
            Accelerator accelerator(dispatch_options(dispatch));
            auto raw = make_loader(
                Keys{}, {.batch_size = 2, .shuffle = true, .num_workers = workers}, AsPairs{});
            auto [loader] = accelerator.prepare(raw);
            for (const auto& epoch : epochs) {
              auto at = static_cast<std::size_t>(accelerator.group().rank());
              for (const auto& batch : loader) {
                require(batch == epoch[at], str("batch ", at, " of the epoch"));
                at += 3;
              }
            }
          },
          3);
    }
  }
}

}  // namespace prepare_dispatch_test
