// File: process/report_exchange.h (internal)
// The ranks of a group that hangs tell each other by the job's store what they do, and agree on one
// report of who is late.
//
//   const ReportExchange exchange(*store, options);
//   if (late || exchange.has_begun()) report = exchange.report(late, [&] { return own_record(); });
//
// The first rank that is late makes the report of what the others answer, and all of them read it.
// Each rank sends a few messages a second, fewer where there are many ranks, and gives up after a
// time that grows with their number. Throws what the store does, std::runtime_error where no report
// comes in time. Thread rule: that of the store.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "process/late_report.h"

namespace hasten {

struct WatchdogOptions {
  std::int64_t rank = 0, size = 1;
  std::chrono::milliseconds limit{};
};

// From the first question on.
struct ReportTimes {
  std::chrono::milliseconds pause;    // between two looks for an answer
  std::chrono::milliseconds answers;  // until the ranks that have not answered are left out
  std::chrono::milliseconds report;   // until the report is given up
  std::chrono::milliseconds alone;    // until a rank that has no report makes one of its own

  static ReportTimes of(std::int64_t size);
};

class ReportExchange {
 public:
  ReportExchange(c10d::Store& store, const WatchdogOptions& options)
      : store_(store), options_(options), times_(ReportTimes::of(options.size)) {}

  // Whether a rank has asked the others what they do.
  bool has_begun() const;
  // `late`: this rank has waited for too long, so that it may ask. `own`: what this rank does,
  // asked for once the exchange has begun.
  LateReport report(bool late, const std::function<RankRecord()>& own) const;

 private:
  using Records = std::vector<std::optional<RankRecord>>;

  LateReport report_of_all(const Records& records) const;
  // Those of the ranks that answer until the deadline.
  Records records_by(std::chrono::steady_clock::time_point deadline, const RankRecord& own) const;

  c10d::Store& store_;
  const WatchdogOptions options_;
  const ReportTimes times_;
};

// The report of a rank that cannot ask the others.
LateReport report_without_others(const RankRecord& own, const WatchdogOptions& options);

}  // namespace hasten
