// File: process/watch/report_exchange.h (internal)
// Lets the ranks of a group that hangs exchange through the job's store what they are doing, and
// agree on one report of who is late.
//
//   const ReportExchange exchange(*store, options);
//   if (is_late || exchange.has_begun())
//     report = exchange.report(is_late, [&] { return own_record(); });
//
// The first rank that notices a timeout makes the report from the others' answers, and all ranks
// read it. Each rank polls the store, less often if there are many ranks, and gives up after a time
// that grows with their number. Throws what the store throws, and std::runtime_error if no report
// arrives in time. Thread rule: the same as for the store.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "process/consensus/store_exchange.h"
#include "process/watch/late_rank_report.h"

namespace hasten {

// The times of an exchange. All but `pause` are measured from its beginning.
struct ReportTimes {
  std::chrono::milliseconds pause;       // between two polls of the store
  std::chrono::milliseconds answers;     // until ranks that have not answered are left out
  std::chrono::milliseconds report;      // until a rank stops waiting for the report
  std::chrono::milliseconds own_report;  // until a rank that has no report makes its own

  static ReportTimes of(std::int64_t size);
};

class ReportExchange {
 public:
  ReportExchange(c10d::Store& store, const RankOptions& options)
      : store_(store), options_(options), times_(ReportTimes::of(options.size)) {}

  // True if a rank has begun an exchange.
  bool has_begun() const;
  // Takes part in the exchange and returns the common report. `is_late` means that this rank has
  // waited too long and may begin the exchange. `own` returns this rank's record; it is called once
  // the exchange has begun.
  LateRankReport report(bool is_late, const std::function<RankRecord()>& own) const;

 private:
  using Records = std::vector<std::optional<RankRecord>>;

  LateRankReport make_report(const Records& records) const;
  // Returns the records of this rank (`own`) and of the ranks that answer before the deadline.
  Records collect_records(std::chrono::steady_clock::time_point deadline,
                          const RankRecord& own) const;

  c10d::Store& store_;
  const RankOptions options_;
  const ReportTimes times_;
};

// Makes the report of a rank that cannot reach the others.
LateRankReport report_without_others(const RankRecord& own, const RankOptions& options);

}  // namespace hasten
