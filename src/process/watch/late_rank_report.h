// File: process/watch/late_rank_report.h (internal)
// Finds out which rank keeps the others waiting, from what every rank reports about itself, and
// writes the report. Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "process/consensus/arrival.h"
#include "process/watch/call_log.h"

namespace hasten {

// The report of one rank about itself.
struct RankRecord {
  struct ReportedCall {
    std::int64_t number = 0;
    // Call::text() and Call::text_with_purpose().
    std::string text, purpose;
    bool is_done = false;
    double seconds = 0;  // since the call ended if it is done, else since it began
  };
  std::int64_t begun = 0;           // number of collectives that have begun
  std::int64_t step = 0;            // number of completed optimizer steps
  std::vector<ReportedCall> calls;  // the latest calls, oldest first
  std::vector<std::string> stack;   // innermost function first; empty if it is not known

  static RankRecord of(const CallLog::Snapshot& snapshot, std::vector<std::string> stack);
  // The oldest call that is not done, or null.
  const ReportedCall* current_call() const;
  // The call with that number, or null if it is not among the latest.
  const ReportedCall* call(std::int64_t number) const;
  std::string to_text() const;
  static RankRecord from_text(const std::string& text);
};

struct LateRankReport {
  std::int64_t printed_by = 0;  // the rank that prints it
  std::string text;             // its lines, each with a newline

  std::string to_text() const;
  static LateRankReport from_text(const std::string& text);
};

// Makes the report. `records` and `locations` are by rank. A rank that has not answered has no
// record; `process_notes` holds what is known about it from outside (process_state_text). A
// location that is not known has no host. `reporter` is the rank that makes the report; it has a
// record and usually waits in a call. `limit` is in seconds.
LateRankReport late_rank_report(const std::vector<std::optional<RankRecord>>& records,
                                const std::vector<RankLocation>& locations,
                                const std::map<std::int64_t, std::string>& process_notes,
                                std::int64_t reporter, double limit);

// Describes the state of a process of this machine, such as "its process is gone". Returns an empty
// text if the process runs normally or cannot be seen from here.
std::string process_state_text(const RankLocation& there, const RankLocation& here);

}  // namespace hasten
