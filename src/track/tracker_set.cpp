#include "track/tracker_set.h"

#include <algorithm>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

// Replaces every tracker in processes that keep nothing.
struct SilentTracker : Tracker {
  std::string name() const override { return ""; }
  void store_init_configuration(const TrackedConfiguration&) override {}
  void log(const TrackedScalars&, std::int64_t) override {}
};

}  // namespace

TrackerSet::TrackerSet(const std::vector<TrackerChoice>& choices, std::filesystem::path logging_dir,
                       bool keeps)
    : logging_dir_(std::move(logging_dir)), keeps_(keeps) {
  for (const TrackerChoice& choice : choices) {
    if (const auto* name = std::get_if<std::string>(&choice)) {
      names_.push_back(*name);
    } else if (const auto& own = std::get<std::shared_ptr<Tracker>>(choice)) {
      own_.push_back(own);
    }
  }
  names_ = expanded_tracker_names(names_);
}

void TrackerSet::start(const std::string& project, const TrackedConfiguration& configuration) {
  finish();
  started_ = true;
  has_logged_ = false;
  last_step_ = to_resume_ ? to_resume_->step : 0;
  if (!keeps_) return;
  const auto folder = logging_dir_.empty() ? logging_dir_ : logging_dir_ / project;
  for (const std::string& name : names_)
    running_.push_back(make_tracker(name, {.folder = folder, .project = project}));
  running_.insert(running_.end(), own_.begin(), own_.end());
  const auto positions = std::exchange(to_resume_, std::nullopt);
  for (const auto& tracker : running_) {
    if (!positions || !resume(*tracker, *positions))
      tracker->store_init_configuration(configuration);
  }
}

TrackerSet::Positions TrackerSet::positions() const {
  Positions positions{.by_name = {}, .step = last_step_};
  for (const auto& tracker : running_) {
    TrackerPosition position = tracker->position();
    if (!position.empty()) positions.by_name.emplace(tracker->name(), std::move(position));
  }
  return positions;
}

void TrackerSet::resume(Positions positions) {
  if (has_logged_) return;
  last_step_ = positions.step;
  for (const auto& tracker : running_) resume(*tracker, positions);
  if (!started_) to_resume_ = std::move(positions);
}

bool TrackerSet::resume(Tracker& tracker, const Positions& positions) {
  const auto found = positions.by_name.find(tracker.name());
  return found != positions.by_name.end() && tracker.resume(found->second, positions.step);
}

void TrackerSet::check_started(const char* call) const {
  if (started_ || (names_.empty() && own_.empty())) return;
  throw UsageError("track.not-started", {.what = call,
                                         .got = "trackers that are not started",
                                         .expected = "a call of init_trackers before",
                                         .hint = "call init_trackers(\"PROJECT\") once"});
}

void TrackerSet::log(const TrackedScalars& values, std::int64_t step) {
  check_started("log");
  // The values of epochs and those of steps may be counted differently.
  last_step_ = std::max(last_step_, step);
  has_logged_ = true;
  for (const auto& tracker : running_) tracker->log(values, step);
}

Tracker& TrackerSet::get(const std::string& name) {
  check_started("get_tracker");
  std::vector<std::string> known = names_;
  for (const auto& tracker : own_) known.push_back(tracker->name());
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    throw UsageError("track.not-used",
                     {.what = "get_tracker",
                      .got = "'" + name + "'",
                      .expected = known.empty() ? "nothing, because log_with is empty"
                                                : "one of " + join(known, ", ")});
  }
  static SilentTracker silent;
  const auto found = std::find_if(running_.begin(), running_.end(),
                                  [&](const auto& each) { return each->name() == name; });
  return found == running_.end() ? silent : **found;
}

void TrackerSet::finish() {
  for (const auto& tracker : running_) tracker->finish();
  running_.clear();
  started_ = false;
}

}  // namespace hasten
