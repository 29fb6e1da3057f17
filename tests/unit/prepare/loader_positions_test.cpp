// The positions of loaders, and the random numbers of rows, with a different number of processes.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <set>

#include "hasten/accelerator.h"
#include "hasten/data/loader.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/code_of.h"
#include "unit/prepare/dispatched_rows.h"
#include "unit/prepare/distributed_fixtures.h"

namespace prepare_loader_positions_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using namespace hasten::distributed_fixtures;
using namespace hasten::dispatched_rows;

TEST_CASE("loader state: another number of processes continues at the same row") {
  constexpr std::int64_t kRows = 29;
  auto whole = make_loader(RowDataset{kRows}, {.batch_size = 1, .shuffle = true}, TextCollator{});
  Rows order, next;
  for (auto& batch : whole) order.push_back(rows_in(batch).front());
  for (auto& batch : whole) next.push_back(rows_in(batch).front());
  // The states that 1, 2 and 3 processes save after some batches of 2.
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
              auto raw = make_loader(RowDataset{kRows}, {.batch_size = 2, .shuffle = true},
                                     TextCollator{});
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
                auto raw = make_loader(RowDataset{kRows}, {.batch_size = 2, .shuffle = true},
                                       TextCollator{});
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
    auto raw = make_loader(Stream{11}, {.batch_size = 2}, TextCollator{});
    raw.load_state({.seed = 42, .epoch = 0, .batch = 1, .rows = 6});  // saved by three processes
    auto [loader] = accelerator.prepare(raw);
    const std::vector<Rows> expected = accelerator.group().rank() == 0
                                           ? std::vector<Rows>{{6, 7}, {10, 0}}
                                           : std::vector<Rows>{{8, 9}, {1, 2}};
    require(pass(loader) == expected, "rows that fill up are still the epoch's first");
    raw.load_state({.seed = 42, .epoch = 0, .batch = 1, .rows = 12});
    require(code_of([&] { pass(loader); }) == "data.state", "past the end");
    auto map = make_loader(RowDataset{11}, {.batch_size = 2}, TextCollator{});
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
  struct PairCollator {
    std::pair<std::vector<std::uint64_t>, std::uint64_t> operator()(
        std::span<const std::uint64_t> keys, const BatchContext& context) const {
      return {{keys.begin(), keys.end()}, context.key()};
    }
  };
  // One process gives the keys of every batch and of its rows.
  std::vector<std::vector<std::pair<std::vector<std::uint64_t>, std::uint64_t>>> epochs(2);
  auto alone = make_loader(Keys{}, {.batch_size = 2, .shuffle = true}, PairCollator{});
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
                Keys{}, {.batch_size = 2, .shuffle = true, .num_workers = workers}, PairCollator{});
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

}  // namespace prepare_loader_positions_test
