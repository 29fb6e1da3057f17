// File: process/late_report.h (internal)
// Who keeps the others waiting, from what every rank says of itself, and the words for it. Thread
// rule: values and pure functions.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "process/call_log.h"
#include "process/process_state.h"

namespace hasten {

// Where a rank runs; known from the beginning, also of one that says nothing any more.
struct Whereabouts {
  std::string host;
  std::string pids;  // the space in which the process's number counts
  ProcessIdentity process;

  static Whereabouts own();
  std::string to_text() const;
  static Whereabouts of_text(const std::string& text);
};

// What one rank is doing.
struct RankRecord {
  struct SaidCall {
    std::int64_t number = 0;
    std::string text, purpose;  // "all_reduce of 4 float", the same with what it is for
    bool over = false;
    double seconds = 0;  // since it began, or since it was over
  };
  std::int64_t begun = 0;          // collectives
  std::int64_t step = 0;           // of training, done
  std::vector<SaidCall> calls;     // the latest, oldest first
  std::vector<std::string> stack;  // innermost first; empty: not to be had

  static RankRecord of(const CallLog::Snapshot& snapshot, std::vector<std::string> stack);
  const SaidCall* waits_in() const;
  const SaidCall* call(std::int64_t number) const;
  std::string to_text() const;
  static RankRecord of_text(const std::string& text);
};

struct LateReport {
  std::int64_t told_by = 0;  // the rank that prints it
  std::string text;          // lines

  std::string to_text() const;
  static LateReport of_text(const std::string& text);
};

// `judge`: a rank that waits. Ranks without a record have not answered; what is known of them from
// outside is in `seen`. A place without a host is not known.
LateReport late_report(const std::vector<std::optional<RankRecord>>& records,
                       const std::vector<Whereabouts>& where,
                       const std::map<std::int64_t, std::string>& seen, std::int64_t judge,
                       double limit);

// What the system says of a process of this machine: "its process is gone"; empty: nothing special,
// or not ours to see.
std::string seen_of(const Whereabouts& there, const Whereabouts& here);

}  // namespace hasten
