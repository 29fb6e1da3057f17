// Ranks of a hanging group, each a thread, agree on one report.
#include "process/watch/report_exchange.h"

#include <doctest/doctest.h>

#include <mutex>
#include <set>

#include "process/consensus/arrival.h"
#include "unit/process/counting_store.h"

namespace process_report_exchange_test {

using namespace hasten;
using namespace std::chrono_literals;

namespace {

RankRecord waiting_in(std::int64_t number) {
  return {.begun = number, .calls = {{.number = number, .text = "barrier", .purpose = "barrier"}}};
}

// Rank 1 works and the others wait; ranks from `silent` on do not answer.
std::set<std::string> reports(CountingStore& store, std::int64_t size, std::int64_t silent) {
  run_in_threads(size, [&](std::int64_t rank) { wait_for_all_ranks(store, rank, size, 60s); });
  store.messages = 0;
  std::mutex mutex;
  std::set<std::string> texts;
  run_in_threads(silent, [&](std::int64_t rank) {
    const ReportExchange exchange(store, {.rank = rank, .size = size, .limit = 2s});
    const bool late = rank != 1;
    while (!late && !exchange.has_begun()) std::this_thread::sleep_for(10ms);
    const auto report =
        exchange.report(late, [&] { return late ? waiting_in(4) : RankRecord{.begun = 3}; });
    const std::lock_guard lock(mutex);
    texts.insert(report.to_text());
  });
  return texts;
}

}  // namespace

TEST_CASE("report exchange: all ranks read one report, that of the first late rank") {
  for (const std::int64_t size : {2, 3, 60}) {
    CountingStore store;
    const auto texts = reports(store, size, size);
    REQUIRE(texts.size() == 1);
    const LateRankReport report = LateRankReport::from_text(*texts.begin());
    CHECK(report.printed_by == 1);
    CHECK(report.text.find("rank 1 has not reached the group's 4th") != std::string::npos);
    CHECK(store.messages < 200 * size);
  }
}

TEST_CASE("report exchange: ranks that do not answer are waited for together") {
  CountingStore store;
  const auto begin = std::chrono::steady_clock::now();
  const auto texts = reports(store, 64, 40);
  REQUIRE(texts.size() == 1);
  CHECK(LateRankReport::from_text(*texts.begin()).printed_by == 1);
  CHECK(std::chrono::steady_clock::now() - begin < 10s);
}

TEST_CASE("report exchange: with more ranks, they wait longer and poll less often") {
  const ReportTimes few = ReportTimes::of(4), many = ReportTimes::of(4000);
  CHECK(few.own_report < 900ms);  // a report comes within a second after the limit
  for (const ReportTimes& times : {few, many}) {
    CHECK(times.answers < times.report);
    CHECK(times.report < times.own_report);
  }
  // A busy rank polls at an interval of one millisecond per rank.
  CHECK(many.answers > 4000ms + many.pause);
  CHECK(4000.0 / std::chrono::duration<double>(many.pause).count() <= 10000);
}

TEST_CASE("report exchange: a rank that cannot reach the others reports its own record") {
  const LateRankReport report =
      report_without_others(waiting_in(4), {.rank = 1, .size = 2, .limit = 2s});
  CHECK(report.printed_by == 1);
  CHECK(report.text.find("rank 0: does not answer; neither does the job's store") !=
        std::string::npos);
}

}  // namespace process_report_exchange_test
