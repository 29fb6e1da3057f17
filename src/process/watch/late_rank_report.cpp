#include "process/watch/late_rank_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/count_text.h"
#include "base/json_line.h"
#include "base/seconds.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "process/consensus/comparison.h"

namespace hasten {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kShownFrames = 10, kShownLate = 3, kShownWaits = 4;

std::string seconds_text(double seconds) { return fixed(seconds, 1) + " s"; }

// The ranks that keep the others waiting, and what they have done or not done.
struct Diagnosis {
  Ranks late_ranks;
  std::string what;
};

// Finds the late ranks in the records. The collective in question is the one in which `reporter`
// waits, or else the latest one that it has begun.
class LateRankFinder {
 public:
  LateRankFinder(const std::vector<std::optional<RankRecord>>& records, std::int64_t reporter)
      : records_(records) {
    const RankRecord& own = *records[static_cast<std::size_t>(reporter)];
    number_ = own.current_call() != nullptr ? own.current_call()->number : own.begun;
  }

  std::int64_t number() const { return number_; }

  Diagnosis diagnose() const {
    const std::string call = str("the group's ", ordinal(number_), " collective");
    const auto not_reached = [&](const Ranks& ranks) {
      return Diagnosis{ranks, str(ranks_text(ranks), ranks.size() == 1 ? " has" : " have",
                                  " not reached ", call)};
    };
    if (const Ranks away = ranks_where([&](const RankRecord& each) {
          return each.begun < number_ && each.current_call() == nullptr;
        });
        !away.empty())
      return not_reached(away);
    Ranks silent;
    for (std::size_t rank = 0; rank < records_.size(); ++rank) {
      if (!records_[rank]) silent.push_back(static_cast<std::int64_t>(rank));
    }
    if (!silent.empty())
      return {silent, str(ranks_text(silent), silent.size() == 1 ? " does" : " do",
                          " not answer, and ", call, " has not ended")};
    for (std::int64_t number = first_known(); number <= number_; ++number) {
      if (Diagnosis differing = differing_call(number); !differing.late_ranks.empty())
        return differing;
    }
    if (const Ranks behind =
            ranks_where([&](const RankRecord& each) { return each.begun < number_; });
        !behind.empty())
      return not_reached(behind);
    return {{}, str("every rank has called ", call, ", but it has not ended")};
  }

  Ranks waiting() const {
    return ranks_where([](const RankRecord& each) { return each.current_call() != nullptr; });
  }

 private:
  template <class Predicate>
  Ranks ranks_where(const Predicate& holds) const {
    Ranks ranks;
    for (std::size_t rank = 0; rank < records_.size(); ++rank) {
      if (records_[rank] && holds(*records_[rank]))
        ranks.push_back(static_cast<std::int64_t>(rank));
    }
    return ranks;
  }

  // Returns the number of the first call that all records still contain.
  std::int64_t first_known() const {
    std::int64_t first = 1;
    for (const auto& record : records_) {
      if (record && !record->calls.empty()) first = std::max(first, record->calls.front().number);
    }
    return first;
  }

  // Returns the ranks whose call of that number differs from the call of most ranks, or in a tie
  // from the call of the lowest rank.
  Diagnosis differing_call(std::int64_t number) const {
    std::vector<std::optional<std::string>> texts;
    for (const auto& record : records_) {
      const auto* const call = record ? record->call(number) : nullptr;
      texts.push_back(call == nullptr ? std::nullopt : std::optional(call->text));
    }
    const Disagreement disagreement = find_disagreement(texts);
    if (disagreement.different_ranks.empty()) return {};
    return {disagreement.different_ranks,
            str(ranks_text(disagreement.different_ranks), " called ",
                disagreement.first_different_text, " as the group's ", ordinal(number),
                " collective, but ", ranks_text(disagreement.majority_ranks), " called ",
                disagreement.majority_text, "; one of these calls has not ended")};
  }

  const std::vector<std::optional<RankRecord>>& records_;
  std::int64_t number_ = 0;
};

std::string doing_text(const RankRecord& record) {
  const std::string steps = count_text(record.step, "step") + " done, ";
  if (const auto* const call = record.current_call())
    return str(steps, "in its ", ordinal(call->number), " collective, ", call->purpose, ", for ",
               seconds_text(call->seconds));
  if (record.calls.empty()) return steps + "has not begun a collective";
  const auto& last = record.calls.back();
  return str(steps, "not in a collective; its last one (the ", ordinal(last.number), ", ",
             last.purpose, ") ended ", seconds_text(last.seconds), " ago");
}

std::string location_text(const RankLocation& location) {
  return location.host.empty() ? ""
                               : str(" (", location.host, ", pid ", location.process.number, ")");
}

void append_stack(std::string& text, const std::vector<std::string>& stack) {
  if (stack.empty()) {
    text += "\n    its stack could not be read";
    return;
  }
  for (std::size_t i = 0; i < std::min(stack.size(), kShownFrames); ++i)
    text += str("\n    ", i == 0 ? "at " : "by ", stack[i]);
}

// Appends one line for all ranks that wait in the same call after the same number of steps.
void append_waiting(std::string& text, const std::vector<std::optional<RankRecord>>& records,
                    const Ranks& waiting) {
  std::map<std::string, Ranks> same;
  std::map<std::string, double> longest;
  for (const std::int64_t rank : waiting) {
    const RankRecord& record = *records[static_cast<std::size_t>(rank)];
    const auto& call = *record.current_call();
    const std::string key = str(count_text(record.step, "step"), " done, in the ",
                                ordinal(call.number), " collective, ", call.purpose, ", for ");
    same[key].push_back(rank);
    longest[key] = std::max(longest[key], call.seconds);
  }
  std::size_t lines = 0;
  for (const auto& [key, ranks] : same) {
    if (++lines > kShownWaits) break;
    text += str("\n  ", ranks_text(ranks), ": ", key, seconds_text(longest[key]));
  }
}

}  // namespace

RankRecord RankRecord::of(const CallLog::Snapshot& snapshot, std::vector<std::string> stack) {
  const auto now = CallLog::Clock::now();
  const auto since = [&](CallLog::Clock::time_point then) { return seconds_of(now - then); };
  RankRecord record{.begun = snapshot.begun, .step = snapshot.step, .stack = std::move(stack)};
  for (const CallLog::Entry& entry : snapshot.entries) {
    record.calls.push_back({.number = entry.number,
                            .text = entry.call.text(),
                            .purpose = entry.call.text_with_purpose(),
                            .is_done = entry.is_done,
                            .seconds = since(entry.is_done ? entry.ended : entry.began)});
  }
  return record;
}

const RankRecord::ReportedCall* RankRecord::current_call() const {
  const auto found = std::find_if(calls.begin(), calls.end(),
                                  [](const ReportedCall& each) { return !each.is_done; });
  return found == calls.end() ? nullptr : &*found;
}

const RankRecord::ReportedCall* RankRecord::call(std::int64_t number) const {
  const auto found = std::find_if(calls.begin(), calls.end(),
                                  [&](const ReportedCall& each) { return each.number == number; });
  return found == calls.end() ? nullptr : &*found;
}

std::string RankRecord::to_text() const {
  Json reported = Json::array();
  for (const ReportedCall& each : calls)
    reported.push_back({each.number, each.text, each.purpose, each.is_done, each.seconds});
  return json_line({{"begun", begun}, {"step", step}, {"calls", reported}, {"stack", stack}});
}

RankRecord RankRecord::from_text(const std::string& text) {
  const Json json = Json::parse(text);
  RankRecord record{.begun = json.at("begun"),
                    .step = json.at("step"),
                    .stack = json.at("stack").get<std::vector<std::string>>()};
  for (const Json& each : json.at("calls")) {
    record.calls.push_back({.number = each.at(0),
                            .text = each.at(1),
                            .purpose = each.at(2),
                            .is_done = each.at(3),
                            .seconds = each.at(4)});
  }
  return record;
}

std::string LateRankReport::to_text() const {
  return json_line({{"printed_by", printed_by}, {"text", text}});
}

LateRankReport LateRankReport::from_text(const std::string& text) {
  const Json json = Json::parse(text);
  return {.printed_by = json.at("printed_by"), .text = json.at("text")};
}

LateRankReport late_rank_report(const std::vector<std::optional<RankRecord>>& records,
                                const std::vector<RankLocation>& locations,
                                const std::map<std::int64_t, std::string>& process_notes,
                                std::int64_t reporter, double limit) {
  const LateRankFinder finder(records, reporter);
  const Diagnosis diagnosis = finder.diagnose();
  const IoError error(
      "process.late-rank",
      {.what = str(diagnosis.what, " within ", significant(limit, 6), " s; the job ends"),
       .hint = "the limit is ddp_timeout of the Trainer and of hasten train, or "
               "GroupOptions::timeout (AcceleratorOptions::process_group.timeout); raise it if "
               "ranks may have to wait longer"});
  LateRankReport report{.printed_by = reporter};
  report.text = str("hasten: error[", error.code(), "]: ", error.what());
  std::size_t shown = 0;
  for (const std::int64_t rank : diagnosis.late_ranks) {
    const auto at = static_cast<std::size_t>(rank);
    const bool answered = records[at].has_value();
    if (answered && report.printed_by == reporter) report.printed_by = rank;
    if (++shown > kShownLate) continue;
    report.text += str("\n  rank ", rank, location_text(locations[at]), ": ");
    if (!answered) {
      const auto found = process_notes.find(rank);
      report.text += "does not answer" + (found == process_notes.end() ? "" : "; " + found->second);
      continue;
    }
    report.text += doing_text(*records[at]);
    append_stack(report.text, records[at]->stack);
  }
  Ranks waiting = finder.waiting();
  std::erase_if(waiting, [&](std::int64_t rank) {
    return std::find(diagnosis.late_ranks.begin(), diagnosis.late_ranks.end(), rank) !=
           diagnosis.late_ranks.end();
  });
  append_waiting(report.text, records, waiting);
  report.text += "\n";
  return report;
}

std::string process_state_text(const RankLocation& there, const RankLocation& here) {
  if (there.host != here.host || there.pid_namespace != here.pid_namespace) return "";
  const char state = process_state(there.process);
  if (state == 0) return "its process is gone";
  if (has_ended(state)) return "its process has ended";
  if (state == 'T' || state == 't') return "its process is stopped by a signal or a debugger";
  if (state == 'D') return "its process waits in the kernel (uninterruptible sleep)";
  return "";
}

}  // namespace hasten
