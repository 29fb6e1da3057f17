// Compares batches of equal cost with transformers' BatchRebalanceSampler (generate_rebalance.py).
#include "hasten/data/detail/rebalance.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/data/column_dataset.h"
#include "hasten/data/loader.h"

namespace oracle_rebalance_test {

using namespace hasten;

namespace {

using Json = nlohmann::json;
using Rows = std::vector<std::int64_t>;

const Json& recorded() {
  static const Json file = Json::parse(
      std::ifstream(std::string(HASTEN_TEST_DATA) + "/oracle/data/loading/rebalance.json"));
  return file;
}

// A dataset whose only column is the number of the row.
ColumnDataset numbered_rows(std::int64_t rows) {
  return ColumnDataset({{"row", at::arange(rows)}});
}

struct ReadBatch {
  Rows rows;
  std::int64_t real = 0;
};
std::vector<ReadBatch> read_all(Loader<TensorDict>& loader) {
  std::vector<ReadBatch> batches;
  for (const auto& [batch, info] : with_info(loader)) {
    const at::Tensor rows = batch.at("row").contiguous();
    const auto* const first = rows.const_data_ptr<std::int64_t>();
    batches.push_back({Rows(first, first + rows.numel()), info.real_rows});
  }
  return batches;
}

LoaderOptions options_of(const Json& each) {
  return {.batch_size = each.at("batch_size"),
          .shuffle = true,
          .rebalance = Rebalance{.lengths = each.at("lengths"), .steps = each.at("steps")}};
}

}  // namespace

TEST_CASE("rebalance: the batches of all processes equal those of transformers") {
  for (const Json& each : recorded().at("cases")) {
    CAPTURE(each.at("name"));
    const Rows lengths = each.at("lengths");
    const std::int64_t world = each.at("world"), steps = each.at("steps"),
                       in_step = each.at("batch_size").get<std::int64_t>() * world * steps;
    const EpochOrder order(static_cast<std::int64_t>(lengths.size()), {.shuffle = true},
                           each.at("epoch"));
    for (std::int64_t step = 0; (step + 1) * in_step <= order.size(); ++step) {
      Rows scratch;
      const auto batches =
          rebalanced_batches(order.slice(step * in_step, in_step, scratch), lengths, world, steps);
      for (std::int64_t rank = 0; rank < world; ++rank) {
        for (std::int64_t micro = 0; micro < steps; ++micro) {
          const Rows expected = each.at("batches")[static_cast<std::size_t>(rank)]
                                                  [static_cast<std::size_t>(step * steps + micro)];
          CHECK(batches[static_cast<std::size_t>(micro * world + rank)] == expected);
        }
      }
    }
  }
}

TEST_CASE("rebalance: a loader reads them, and resumes between two optimizer steps") {
  const Json& each = recorded().at("cases")[0];
  const auto rows = static_cast<std::int64_t>(each.at("lengths").size());
  auto loader = make_loader(numbered_rows(rows), options_of(each));
  const auto batches = read_all(loader);
  REQUIRE(batches.size() == each.at("batches")[0].size());
  for (std::size_t i = 0; i < batches.size(); ++i) {
    CHECK(batches[i].rows == each.at("batches")[0][i].get<Rows>());
    CHECK(batches[i].real == static_cast<std::int64_t>(batches[i].rows.size()));
  }
  auto resumed = make_loader(numbered_rows(rows), options_of(each));
  resumed.load_state({.seed = 42, .epoch = 0, .batch = 6});
  const auto rest = read_all(resumed);
  REQUIRE(rest.size() == batches.size() - 6);
  for (std::size_t i = 0; i < rest.size(); ++i) CHECK(rest[i].rows == batches[i + 6].rows);
}

TEST_CASE("rebalance: an epoch that does not divide reads every row once") {
  for (const std::int64_t rows : {13, 24, 25, 31, 2}) {
    CAPTURE(rows);
    Rows lengths;
    for (std::int64_t row = 0; row < rows; ++row) lengths.push_back(3 + row * 7 % 11);
    auto loader = make_loader(numbered_rows(rows), {.batch_size = 4,
                                                    .shuffle = true,
                                                    .num_workers = 2,
                                                    .rebalance = Rebalance{lengths, /*steps=*/3}});
    std::vector<int> times(static_cast<std::size_t>(rows));
    const auto batches = read_all(loader);
    CHECK(static_cast<std::int64_t>(batches.size()) == loader.size());
    for (const ReadBatch& batch : batches) {
      CHECK(!batch.rows.empty());
      for (std::int64_t i = 0; i < batch.real; ++i)
        ++times[static_cast<std::size_t>(batch.rows[static_cast<std::size_t>(i)])];
    }
    CHECK(times == std::vector<int>(static_cast<std::size_t>(rows), 1));
  }
}

TEST_CASE("rebalance: invalid options are refused") {
  const auto make = [](Rebalance rebalance) {
    (void)make_loader(numbered_rows(4), {.batch_size = 2, .rebalance = std::move(rebalance)});
  };
  CHECK_THROWS_AS(make({.lengths = {1, 2}, .steps = 1}), UsageError);
  CHECK_THROWS_AS(make({.lengths = {1, 2, 3, 4}, .steps = 0}), ConfigError);
  const Rows one = {0}, length = {5};
  CHECK_THROWS_AS(rebalanced_batches(one, length, 2, 1), UsageError);
}

}  // namespace oracle_rebalance_test
