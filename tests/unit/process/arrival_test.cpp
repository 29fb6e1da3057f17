// Ranks wait until all of them have arrived.
#include "process/consensus/arrival.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "unit/process/counting_store.h"

namespace process_arrival_test {

using namespace hasten;
using namespace std::chrono_literals;

TEST_CASE("arrival: all ranks arrive with three messages each and exchange their locations") {
  constexpr std::int64_t kSize = 60;
  CountingStore store;
  run_in_threads(kSize, [&](std::int64_t rank) { wait_for_all_ranks(store, rank, kSize, 60s); });
  CHECK(store.messages <= 3 * kSize + 1);
  const auto locations = locations_of_all(store, kSize);
  REQUIRE(locations.size() == kSize);
  CHECK(locations[59].process.number == getpid());
}

TEST_CASE("arrival: every rank names the missing ranks, and only one rank looks for them") {
  constexpr std::int64_t kSize = 64;
  CountingStore store;
  std::atomic<std::int64_t> told = 0;
  run_in_threads(kSize, [&](std::int64_t rank) {
    if (rank == 5 || rank == 41) return;
    try {
      wait_for_all_ranks(store, rank, kSize, 500ms);
    } catch (const Error& error) {
      const std::string text = error.what();
      const bool names_them = text.find("got nothing from ranks 5, 41") != text.npos &&
                              text.find(str("on rank ", rank, ":")) != text.npos;
      told += error.code() == "process.rank-missing" && names_them;
    }
  });
  CHECK(told == kSize - 2);
  CHECK(store.messages < 8 * kSize);
}

}  // namespace process_arrival_test
