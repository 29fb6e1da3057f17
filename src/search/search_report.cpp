// The table and the JSON of a search.
#include <algorithm>

#include "hasten/base/text.h"
#include "hasten/search/search.h"
#include "search/trial_json.h"

namespace hasten {
namespace {

bool is_better_trial(SearchDirection direction, const FinishedTrial& a, const FinishedTrial& b) {
  return direction == SearchDirection::minimize ? *a.value < *b.value : *a.value > *b.value;
}

// The complete trials, best first, then the pruned ones, then the failed ones.
std::vector<const FinishedTrial*> sorted_trials(const SearchResult& result) {
  std::vector<const FinishedTrial*> trials;
  for (const FinishedTrial& trial : result.trials) trials.push_back(&trial);
  std::stable_sort(trials.begin(), trials.end(), [&](const auto* a, const auto* b) {
    if (a->state != b->state) return a->state < b->state;
    return a->state == TrialState::complete && is_better_trial(result.direction, *a, *b);
  });
  return trials;
}

std::vector<std::string> row_of_trial(const FinishedTrial& trial) {
  const bool has_reports = !trial.reports.empty();
  std::vector<std::string> row = {str(trial.number), std::string(name_of(trial.state)),
                                  trial.value ? significant(*trial.value, 6) : "",
                                  has_reports ? str(trial.reports.rbegin()->first) : "",
                                  fixed(trial.seconds, 1)};
  for (const auto& [name, value] : trial.parameters) row.push_back(config::to_text(value));
  return row;
}

}  // namespace

const FinishedTrial* SearchResult::best() const {
  const FinishedTrial* best = nullptr;
  for (const FinishedTrial& trial : trials) {
    if (trial.state != TrialState::complete) continue;
    if (!best || is_better_trial(direction, trial, *best)) best = &trial;
  }
  return best;
}

std::string to_text(const SearchResult& result, const std::string& objective) {
  std::vector<std::string> header = {"trial", "state", objective, "step", "seconds"};
  if (!result.trials.empty()) {
    for (const auto& [name, value] : result.trials[0].parameters) header.push_back(name);
  }
  std::vector<std::vector<std::string>> rows;
  std::string reasons;
  for (const FinishedTrial* trial : sorted_trials(result)) {
    rows.push_back(row_of_trial(*trial));
    if (trial->state == TrialState::failed)
      reasons += str("trial ", trial->number, " failed: ", trial->reason, "\n");
  }
  return table(header, rows) + reasons;
}

std::string to_json(const SearchResult& result) {
  TrialJson json = {{"direction", std::string(name_of(result.direction))},
                    {"interrupted", result.interrupted},
                    {"best", nullptr},
                    {"trials", TrialJson::array()}};
  if (const FinishedTrial* best = result.best()) json["best"] = trial_json(*best);
  for (const FinishedTrial& trial : result.trials) json["trials"].push_back(trial_json(trial));
  return json.dump(2, ' ', false, TrialJson::error_handler_t::replace) + "\n";
}

}  // namespace hasten
