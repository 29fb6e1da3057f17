// File: track/tracker_set.h (internal)
// The trackers of a run, which it starts, logs to and finishes together.
//
//   TrackerSet trackers({"tensorboard", own_tracker}, "logs", /*keeps=*/is_main_process);
//   trackers.start({.project = "sst2"}, configuration);
//   trackers.log({{"loss", 0.4}}, step);
//   save(trackers.positions());                     // trackers.resume(positions) in a later run
//   trackers.finish();
//
// In a process that does not keep what is logged, the functions make the same checks and do nothing
// else. Throws ConfigError "track.unknown" and "track.logging-dir", UsageError "track.not-started"
// and "track.not-used". Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/internal_api.h"
#include "hasten/track/tracker.h"

namespace hasten {

class HASTEN_INTERNAL_API TrackerSet {
 public:
  TrackerSet(const std::vector<TrackerChoice>& choices, std::filesystem::path logging_dir,
             bool keeps);
  // Makes the trackers that were chosen by name and gives the configuration to all trackers.
  // Finishes the trackers of an earlier start.
  void start(const std::string& project, const TrackedConfiguration& configuration);
  void log(const TrackedScalars& values, std::int64_t step);
  // The state that a checkpoint keeps: the positions of the trackers by name, and the largest step
  // that was logged.
  struct Positions {
    std::map<std::string, TrackerPosition> by_name;
    std::int64_t step = 0;
  };
  // Empty if the trackers are not started, and in a process that does not keep what is logged.
  Positions positions() const;
  // Continues at the positions of a checkpoint, or when the trackers start, if they have not
  // started yet. Trackers that the checkpoint lacks continue as they are, and so do all trackers
  // if values were logged since the start: a run that loads its best checkpoint at its end keeps
  // its curves.
  void resume(Positions positions);
  Tracker& get(const std::string& name);
  void finish();

 private:
  void check_started(const char* call) const;
  // Continues one tracker. Returns true if it has the configuration already.
  static bool resume(Tracker& tracker, const Positions& positions);

  std::vector<std::string> names_;             // Come in this order, before own_.
  std::vector<std::shared_ptr<Tracker>> own_;  // The trackers of the caller.
  std::vector<std::shared_ptr<Tracker>> running_;
  std::filesystem::path logging_dir_;
  bool keeps_ = false, started_ = false;
  bool has_logged_ = false;             // since the latest start
  std::int64_t last_step_ = 0;          // the largest one that was logged
  std::optional<Positions> to_resume_;  // for the next start
};

}  // namespace hasten
