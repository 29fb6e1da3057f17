// Loaders that rank 0 reads for all ranks, and streams across processes. Each process is a fork of
// this one.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include "hasten/accelerator.h"
#include "hasten/data/loader.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/code_of.h"
#include "unit/prepare/dispatched_rows.h"
#include "unit/prepare/distributed_fixtures.h"

namespace prepare_dispatch_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using namespace hasten::distributed_fixtures;
using namespace hasten::dispatched_rows;

TEST_CASE("dispatch: every process has the batches that it would have read itself") {
  for (const std::int64_t workers : {0, 3}) {
    debug_launcher(
        [=] {
          Accelerator each(dispatch_options(false)), first(dispatch_options(true));
          const LoaderOptions options{.batch_size = 4, .shuffle = true, .num_workers = workers};
          RowDataset own{37}, sent{37};
          auto raw_own = make_loader(own, options, TextCollator{});
          auto raw_sent = make_loader(sent, options, TextCollator{});
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
            auto raw =
                make_loader(stream, {.batch_size = 2, .num_workers = workers}, TextCollator{});
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
            auto raw =
                make_loader(stream, {.batch_size = 2, .num_workers = workers}, TextCollator{});
            auto [loader] = accelerator.prepare(raw);
            std::int64_t batches = 0;
            require(code_of([&] {
                      for ([[maybe_unused]] auto& batch : loader) ++batches;
                    }) == code,
                    "expected " + code);
            return batches;
          };
          // A step has six rows. A stream of 14 rows ends in the third step.
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
          auto raw = make_loader(Stream{9}, {.batch_size = 2}, TextCollator{});
          auto map = make_loader(RowDataset{9}, {.batch_size = 2}, TextCollator{});
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
          auto raw =
              make_loader(dataset, {.batch_size = 2, .num_workers = workers}, TextCollator{});
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
  check(RowDataset{.rows = 30, .fails_at = 13}, 0, "test.broken", "broken: got row 13");
  check(RowDataset{.rows = 30, .fails_at = 13}, 2, "test.broken", "(rows 12, 13)");
  check(Stream{.rows = 30, .fails_at = 13}, 0, "data.batch", "the line is cut");
  debug_launcher([] {  // even if nothing can be read at all
    Accelerator accelerator;
    auto raw = make_loader(Stream{accelerator.group().rank() == 0 ? 0 : 5}, {}, TextCollator{});
    auto [loader] = accelerator.prepare(raw);
    require(code_of([&] { pass(loader); }) == "data.empty", "an empty stream");
  });
}

TEST_CASE("dispatch: a tensor that cannot be sent throws in every process, at the same batch") {
  struct SparseCollator {
    TensorDict operator()(std::span<const Row> rows) const {
      const at::Tensor dense = torch::ones({2, 2});
      return {{"x", rows.front().number >= 20 ? dense.to_sparse() : dense}};
    }
  };
  debug_launcher(
      [] {
        Accelerator accelerator(dispatch_options(true));
        auto raw = make_loader(RowDataset{60}, {.batch_size = 2}, SparseCollator{});
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
          auto raw = make_loader(RowDataset{400},
                                 {.batch_size = 2, .num_workers = first == first_has_them ? 4 : 0},
                                 TextCollator{});
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
        auto raw = make_loader(stream, {.batch_size = 2, .prefetch_factor = 3}, TextCollator{});
        auto [loader] = accelerator.prepare(raw);
        const std::int64_t rank = accelerator.group().rank();
        for (int left_at = 0; left_at < 5; ++left_at) {
          const std::int64_t before = *stream.reads;
          int batch = 0;
          for (auto& each : loader) {
            require(rows_in(each).front() == 6 * batch + 2 * rank, "the pass does not start again");
            if (batch++ == left_at) break;
          }
          // Rank 0 reads up to the current step, one more to know whether it is the last, and three
          // ahead.
          const std::int64_t steps = left_at + 1 + 1 + 3;
          require(*stream.reads - before == (rank == 0 ? 6 * steps : 0), "steps read");
          require(loader->epoch() == 0, "still the first epoch");
        }
      },
      3);
}

TEST_CASE("dispatch: processes that leave a pass at different batches resynchronize or throw") {
  debug_launcher([] {
    Accelerator accelerator;
    const std::int64_t rank = accelerator.group().rank();
    auto raw = make_loader(Stream{100}, {.batch_size = 2}, TextCollator{});
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
      auto raw = make_loader(Stream{100}, {.batch_size = 2}, TextCollator{});
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
  struct OpaqueCollator {
    Opaque operator()(std::span<const Row>) const { return {}; }
  };
  debug_launcher([] {
    Accelerator accelerator;
    auto raw = make_loader(Stream{4}, {}, OpaqueCollator{});
    require(code_of([&] { accelerator.prepare(raw); }) == "data.sharding", "no way to send it");
    Accelerator each(dispatch_options(false));
    auto own = make_loader(Stream{4}, {}, OpaqueCollator{});
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
        auto raw = make_loader(RowDataset{rank == 2 ? 41 : 40}, {.batch_size = 4}, TextCollator{});
        accelerator.prepare(raw);
      },
      "data.loaders-differ",
      "differs on rank 2: got a loader of 41 rows, batch_size 4, seed 42, expected a loader of "
      "40 rows, batch_size 4, seed 42, as on rank 0");
  check_difference_reported(
      [](Accelerator& accelerator, std::int64_t rank) {
        auto raw = make_loader(RowDataset{40}, {.shuffle = rank != 1}, TextCollator{});
        accelerator.prepare(raw);
      },
      "data.loaders-differ", "differs on rank 1");
  check_difference_reported(
      [](Accelerator& accelerator, std::int64_t rank) {
        auto raw = make_loader(Stream{40}, {.batch_size = 2 + rank}, TextCollator{});
        accelerator.prepare(raw);
      },
      "data.loaders-differ", "batch_size 3");
  check_difference_reported(
      [](Accelerator& accelerator, std::int64_t rank) {
        std::vector<at::Tensor> batches(static_cast<std::size_t>(5 + rank), torch::ones({1}));
        accelerator.prepare(batches);
      },
      "data.loaders-differ", "a loader of 6 batches, read by every process");
  check_difference_reported(  // prepared in a different order
      [](Accelerator& accelerator, std::int64_t rank) {
        auto raw = make_loader(RowDataset{40}, {}, TextCollator{});
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
        auto small = make_loader(RowDataset{40}, {.batch_size = 2}, TextCollator{});
        try {
          splitting.prepare(small);
          throw std::runtime_error("nothing was thrown");
        } catch (const ConfigError& error) {
          require(error.code() == "data.sharding", error.code());
          require(error.hint().find("set batch_size = 3") != std::string::npos, error.what());
        }
        Accelerator plain;
        auto few = make_loader(RowDataset{2}, {.batch_size = 1},
                               TextCollator{});  // there may be fewer rows
        auto [loader] = plain.prepare(few);
        require(pass(loader).size() == 1, "a batch for each");
      },
      3);
}

}  // namespace prepare_dispatch_test
