// Who is late, from what the ranks say.
#include "process/watch/late_report.h"

#include <doctest/doctest.h>
#include <torch/torch.h>
#include <unistd.h>

#include "hasten/base/text.h"

using namespace hasten;

namespace {

using Said = RankRecord::ReportedCall;
using Records = std::vector<std::optional<RankRecord>>;

Said reported_call(std::int64_t number, const std::string& text, bool over, double seconds = 2) {
  return {.number = number, .text = text, .purpose = text, .over = over, .seconds = seconds};
}
RankRecord waiting(std::int64_t number, const std::string& text = "barrier") {
  return {
      .begun = number,
      .calls = {reported_call(number - 1, "barrier", true), reported_call(number, text, false)}};
}
RankRecord working(std::int64_t last) {
  return {.begun = last,
          .step = 5,
          .calls = {reported_call(last, "barrier", true)},
          .stack = {"f() in a+0x1"}};
}

std::vector<RankLocation> places(std::size_t count) {
  std::vector<RankLocation> where;
  for (std::size_t rank = 0; rank < count; ++rank)
    where.push_back({.host = "box",
                     .pid_namespace = "p",
                     .process = {.number = 100 + static_cast<std::int64_t>(rank)}});
  return where;
}

LateReport report_of(const Records& records, std::int64_t reporter,
                     const std::map<std::int64_t, std::string>& process_notes = {}) {
  return late_report(records, places(records.size()), process_notes, reporter, 2);
}

bool holds(const LateReport& report, const std::string& text) {
  return report.text.find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("late report: a rank that has not come to the call is late, and tells it itself") {
  const auto report = report_of({waiting(4), working(3), waiting(4)}, 2);
  CHECK(report.printed_by == 1);
  CHECK(starts_with(report.text,
                    "hasten: error[process.late-rank]: rank 1 has not reached the "
                    "group's 4th collective within 2 s; the job ends. Hint: "));
  CHECK(holds(report,
              "\n  rank 1 (box, pid 101): 5 steps done, not in a collective; its last one (the "
              "3rd, barrier) ended 2.0 s ago\n    at f() in a+0x1\n"));
  CHECK(holds(report, "\n  ranks 0, 2: 0 steps done, in the 4th collective, barrier, for 2.0 s\n"));
}

TEST_CASE("late report: of several the lowest tells, and three are shown") {
  const auto report = report_of({waiting(4), working(2), working(3), working(3), RankRecord{}}, 0);
  CHECK(report.printed_by == 1);
  CHECK(holds(report, "ranks 1, 2, 3, 4 have not reached"));
  CHECK(holds(report, "rank 3 (box"));
  CHECK_FALSE(holds(report, "rank 4 (box"));
}

TEST_CASE("late report: a rank that has called nothing yet") {
  CHECK(holds(report_of({waiting(1), RankRecord{}}, 0),
              "rank 1 (box, pid 101): 0 steps done, has not begun a collective\n    its stack "
              "could not be read"));
}

TEST_CASE("late report: a silent rank is late only where nobody else is") {
  const auto silent =
      report_of({waiting(4), std::nullopt, waiting(4)}, 0, {{1, "its process is gone"}});
  CHECK(silent.printed_by == 0);
  CHECK(holds(silent, "rank 1 does not answer, and the group's 4th collective has not ended"));
  CHECK(holds(silent, "rank 1 (box, pid 101): does not answer; its process is gone\n"));
  const auto other = report_of({waiting(4), std::nullopt, working(3)}, 0);
  CHECK(other.printed_by == 2);
  CHECK(holds(other, "rank 2 has not reached"));
}

TEST_CASE(
    "late report: a rank that waits itself, behind others, is not late before one that works") {
  const auto report = report_of({waiting(9), waiting(7), working(6)}, 0);
  CHECK(report.printed_by == 2);
  CHECK(holds(report, "rank 2 has not reached the group's 9th"));
}

TEST_CASE("late report: all wait, one of them in another call") {
  const auto report = report_of({waiting(4, "all_reduce of 2 float"), waiting(4), waiting(4)}, 1);
  CHECK(report.printed_by == 0);
  CHECK(holds(report,
              "rank 0 called all_reduce of 2 float as the group's 4th collective, but "
              "ranks 1, 2 called barrier; one of these calls has not ended within 2 s"));
  // The difference may lie before: a root has gone on.
  RankRecord ahead = waiting(5);
  ahead.calls[0] = reported_call(4, "broadcast of 2 float, root 0", true);
  CHECK(holds(report_of({ahead, waiting(4), waiting(4)}, 0),
              "rank 0 called broadcast of 2 float, root 0 as the group's 4th collective"));
}

TEST_CASE("late report: nobody is to blame where all wait in the same call") {
  const auto report = report_of({waiting(4), waiting(4)}, 1);
  CHECK(report.printed_by == 1);
  CHECK(holds(report,
              "every rank has called the group's 4th collective, but it has not ended within 2 s"));
}

TEST_CASE("late report: records and reports travel as text") {
  CallLog log;
  log.set_step(3);
  log.end(log.begin(Call::of("barrier", {})));
  log.set_purpose({.text = "bucket", .index = 2});
  log.begin(Call::of("all_reduce", {at::ones({4, 2}), at::ones({1})}));
  const auto record = RankRecord::of_text(RankRecord::of(log.snapshot(), {"a", "\xff"}).to_text());
  CHECK(record.begun == 2);
  CHECK(record.step == 3);
  CHECK(record.stack.size() == 2);
  REQUIRE(record.current_call() != nullptr);
  CHECK(record.current_call()->purpose == "all_reduce of 2 tensors, 9 float together (bucket 2)");
  CHECK(record.call(1)->text == "barrier");
  CHECK(record.call(3) == nullptr);
  const auto report = LateReport::of_text(LateReport{.printed_by = 3, .text = "a\nb"}.to_text());
  CHECK(report.printed_by == 3);
  CHECK(report.text == "a\nb");
}

TEST_CASE("late report: what the system says of a process") {
  const RankLocation here = RankLocation::own();
  CHECK(here.process.number == getpid());
  CHECK(process_state_text(here, here).empty());
  CHECK(process_state_text(RankLocation::of_text(here.to_text()), here).empty());
  RankLocation other = here;
  other.process.number = 1 << 30;
  CHECK(process_state_text(other, here) == "its process is gone");
  other = here;
  ++other.process.started;  // the number has been given again
  CHECK(process_state_text(other, here) == "its process is gone");
  other.host += "?";
  CHECK(process_state_text(other, here).empty());
}
