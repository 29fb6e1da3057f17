// The late rank that follows from the records of all ranks.
#include "process/watch/late_rank_report.h"

#include <doctest/doctest.h>
#include <torch/torch.h>
#include <unistd.h>

#include "hasten/base/text.h"

namespace process_late_rank_report_test {

using namespace hasten;

namespace {

using ReportedCall = RankRecord::ReportedCall;
using Records = std::vector<std::optional<RankRecord>>;

ReportedCall reported_call(std::int64_t number, const std::string& text, bool is_done,
                           double seconds = 2) {
  return {.number = number, .text = text, .purpose = text, .is_done = is_done, .seconds = seconds};
}
RankRecord waiting_record(std::int64_t number, const std::string& text = "barrier") {
  return {
      .begun = number,
      .calls = {reported_call(number - 1, "barrier", true), reported_call(number, text, false)}};
}
RankRecord working_record(std::int64_t last) {
  return {.begun = last,
          .step = 5,
          .calls = {reported_call(last, "barrier", true)},
          .stack = {"f() in a+0x1"}};
}

std::vector<RankLocation> make_locations(std::size_t count) {
  std::vector<RankLocation> where;
  for (std::size_t rank = 0; rank < count; ++rank)
    where.push_back({.host = "box",
                     .pid_namespace = "p",
                     .process = {.number = 100 + static_cast<std::int64_t>(rank)}});
  return where;
}

LateRankReport report_of(const Records& records, std::int64_t reporter,
                         const std::map<std::int64_t, std::string>& process_notes = {}) {
  return late_rank_report(records, make_locations(records.size()), process_notes, reporter, 2);
}

bool report_contains(const LateRankReport& report, const std::string& text) {
  return report.text.find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("late rank report: a rank that has not reached the call is late, and reports it itself") {
  const auto report = report_of({waiting_record(4), working_record(3), waiting_record(4)}, 2);
  CHECK(report.printed_by == 1);
  CHECK(starts_with(report.text,
                    "hasten: error[process.late-rank]: rank 1 has not reached the "
                    "group's 4th collective within 2 s; the job ends. Hint: the limit is "
                    "ddp_timeout of the Trainer and of hasten train, or GroupOptions::timeout "));
  CHECK(report_contains(
      report,
      "\n  rank 1 (box, pid 101): 5 steps done, not in a collective; its last one (the "
      "3rd, barrier) ended 2.0 s ago\n    at f() in a+0x1\n"));
  CHECK(report_contains(
      report, "\n  ranks 0, 2: 0 steps done, in the 4th collective, barrier, for 2.0 s\n"));
}

TEST_CASE("late rank report: of several late ranks the lowest reports, and three are shown") {
  const auto report = report_of(
      {waiting_record(4), working_record(2), working_record(3), working_record(3), RankRecord{}},
      0);
  CHECK(report.printed_by == 1);
  CHECK(report_contains(report, "ranks 1, 2, 3, 4 have not reached"));
  CHECK(report_contains(report, "rank 3 (box"));
  CHECK_FALSE(report_contains(report, "rank 4 (box"));
}

TEST_CASE("late rank report: a rank without any call so far is late") {
  CHECK(report_contains(
      report_of({waiting_record(1), RankRecord{}}, 0),
      "rank 1 (box, pid 101): 0 steps done, has not begun a collective\n    its stack "
      "could not be read"));
}

TEST_CASE("late rank report: a silent rank is late only if no other rank is") {
  const auto silent = report_of({waiting_record(4), std::nullopt, waiting_record(4)}, 0,
                                {{1, "its process is gone"}});
  CHECK(silent.printed_by == 0);
  CHECK(report_contains(silent,
                        "rank 1 does not answer, and the group's 4th collective has not ended"));
  CHECK(report_contains(silent, "rank 1 (box, pid 101): does not answer; its process is gone\n"));
  const auto other = report_of({waiting_record(4), std::nullopt, working_record(3)}, 0);
  CHECK(other.printed_by == 2);
  CHECK(report_contains(other, "rank 2 has not reached"));
}

TEST_CASE("late rank report: a rank that waits behind others is not late before one that works") {
  const auto report = report_of({waiting_record(9), waiting_record(7), working_record(6)}, 0);
  CHECK(report.printed_by == 2);
  CHECK(report_contains(report, "rank 2 has not reached the group's 9th"));
}

TEST_CASE("late rank report: if all wait, the rank in another call is named") {
  const auto report = report_of(
      {waiting_record(4, "all_reduce of 2 float"), waiting_record(4), waiting_record(4)}, 1);
  CHECK(report.printed_by == 0);
  CHECK(report_contains(report,
                        "rank 0 called all_reduce of 2 float as the group's 4th collective, but "
                        "ranks 1, 2 called barrier; one of these calls has not ended within 2 s"));
  // The calls may have differed earlier, because the root of a broadcast continues at once.
  RankRecord ahead = waiting_record(5);
  ahead.calls[0] = reported_call(4, "broadcast of 2 float, root 0", true);
  CHECK(
      report_contains(report_of({ahead, waiting_record(4), waiting_record(4)}, 0),
                      "rank 0 called broadcast of 2 float, root 0 as the group's 4th collective"));
}

TEST_CASE("late rank report: no rank is late if all wait in the same call") {
  const auto report = report_of({waiting_record(4), waiting_record(4)}, 1);
  CHECK(report.printed_by == 1);
  CHECK(report_contains(
      report, "every rank has called the group's 4th collective, but it has not ended within 2 s"));
}

TEST_CASE("late rank report: records and reports survive as text") {
  CallLog log;
  log.set_step(3);
  log.end(log.begin(Call::of("barrier", {})));
  log.set_purpose({.text = "bucket", .index = 2});
  log.begin(Call::of("all_reduce", {at::ones({4, 2}), at::ones({1})}));
  const auto record =
      RankRecord::from_text(RankRecord::of(log.snapshot(), {"a", "\xff"}).to_text());
  CHECK(record.begun == 2);
  CHECK(record.step == 3);
  CHECK(record.stack.size() == 2);
  REQUIRE(record.current_call() != nullptr);
  CHECK(record.current_call()->purpose == "all_reduce of 2 tensors, 9 float together (bucket 2)");
  CHECK(record.call(1)->text == "barrier");
  CHECK(record.call(3) == nullptr);
  const auto report =
      LateRankReport::from_text(LateRankReport{.printed_by = 3, .text = "a\nb"}.to_text());
  CHECK(report.printed_by == 3);
  CHECK(report.text == "a\nb");
}

TEST_CASE("late rank report: a process note is used only for the same process") {
  const RankLocation here = RankLocation::own();
  CHECK(here.process.number == getpid());
  CHECK(process_state_text(here, here).empty());
  CHECK(process_state_text(RankLocation::from_text(here.to_text()), here).empty());
  RankLocation other = here;
  other.process.number = 1 << 30;
  CHECK(process_state_text(other, here) == "its process is gone");
  other = here;
  ++other.process.started;  // the number belongs to a new process
  CHECK(process_state_text(other, here) == "its process is gone");
  other.host += "?";
  CHECK(process_state_text(other, here).empty());
}

}  // namespace process_late_rank_report_test
