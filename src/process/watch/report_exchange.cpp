#include "process/watch/report_exchange.h"

#include <algorithm>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/seconds.h"
#include "hasten/base/text.h"
#include "process/consensus/arrival.h"

namespace hasten {
namespace {

using std::chrono::milliseconds;
using ExchangeClock = std::chrono::steady_clock;

const std::string kAsked = "watchdog/asked", kAnswered = "watchdog/answered",
                  kReported = "watchdog/report";

std::string record_key(std::int64_t rank) { return str("watchdog/record/", rank); }

}  // namespace

ReportTimes ReportTimes::of(std::int64_t size) {
  // A busy rank checks the store only every max(250 ms, size ms), and all ranks together poll a
  // store that answers about ten thousand requests per second.
  ReportTimes times;
  times.pause = std::max(milliseconds(15), milliseconds(size / 10));
  times.answers = milliseconds(550 + 2 * size);
  times.report = times.answers + milliseconds(100 + size);
  times.own_report = times.report + milliseconds(100) + times.pause;
  return times;
}

bool ReportExchange::has_begun() const { return store_.check({kAsked}); }

LateRankReport ReportExchange::report(bool is_late, const std::function<RankRecord()>& own) const {
  const auto began = ExchangeClock::now();
  const bool is_first = is_late && store_.add(kAsked, 1) == 1;
  const RankRecord record = own();
  if (is_first) {
    const LateRankReport report = make_report(collect_records(began + times_.answers, record));
    store_.set(kReported, report.to_text());
    return report;
  }
  store_.set(record_key(options_.rank), record.to_text());
  store_.add(kAnswered, 1);
  while (!store_.check({kReported})) {
    if (ExchangeClock::now() >= began + times_.report) throw std::runtime_error("no report");
    std::this_thread::sleep_for(times_.pause);
  }
  return LateRankReport::from_text(text_at(store_, kReported));
}

LateRankReport ReportExchange::make_report(const Records& records) const {
  const std::vector<RankLocation> locations = locations_of_all(store_, options_.size);
  const RankLocation here = RankLocation::own();
  std::map<std::int64_t, std::string> process_notes;
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    const std::string state = records[rank] ? "" : process_state_text(locations[rank], here);
    if (!state.empty()) process_notes[static_cast<std::int64_t>(rank)] = state;
  }
  return late_rank_report(records, locations, process_notes, options_.rank,
                          seconds_of(options_.limit));
}

ReportExchange::Records ReportExchange::collect_records(ExchangeClock::time_point deadline,
                                                        const RankRecord& own) const {
  while (store_.add(kAnswered, 0) < options_.size - 1 && ExchangeClock::now() < deadline)
    std::this_thread::sleep_for(times_.pause);
  std::vector<std::int64_t> others;
  std::vector<std::string> keys, known;
  for (std::int64_t rank = 0; rank < options_.size; ++rank) {
    if (rank == options_.rank) continue;
    others.push_back(rank);
    keys.push_back(record_key(rank));
  }
  const std::vector<bool> answered = keys_exist(store_, keys);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (answered[i]) known.push_back(keys[i]);
  }
  const std::vector<std::string> texts =
      known.empty() ? std::vector<std::string>() : texts_at(store_, known);
  Records records(static_cast<std::size_t>(options_.size));
  records[static_cast<std::size_t>(options_.rank)] = own;
  std::size_t next = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (answered[i])
      records[static_cast<std::size_t>(others[i])] = RankRecord::from_text(texts[next++]);
  }
  return records;
}

LateRankReport report_without_others(const RankRecord& own, const RankOptions& options) {
  const auto size = static_cast<std::size_t>(options.size);
  std::vector<std::optional<RankRecord>> records(size);
  records[static_cast<std::size_t>(options.rank)] = own;
  std::map<std::int64_t, std::string> process_notes;
  for (std::int64_t rank = 0; rank < options.size; ++rank)
    process_notes[rank] = "neither does the job's store";
  return late_rank_report(records, std::vector<RankLocation>(size), process_notes, options.rank,
                          seconds_of(options.limit));
}

}  // namespace hasten
