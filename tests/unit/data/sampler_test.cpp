#include "hasten/data/sampler.h"

#include <doctest/doctest.h>

#include "hasten/base/error.h"

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
