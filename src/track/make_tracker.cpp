#include <algorithm>

#include "base/did_you_mean.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/options/detail/environment.h"
#include "hasten/track/file_trackers.h"
#include "hasten/track/mlflow_tracker.h"
#include "hasten/track/tracker.h"

namespace hasten {
namespace {

[[noreturn]] void throw_unknown_tracker(const std::string& name) {
  throw ConfigError("track.unknown",
                    {.what = "tracker",
                     .got = "'" + name + "'",
                     .expected = "one of " + join(tracker_names(), ", ") + ", all or none",
                     .hint = did_you_mean(nearest(name, tracker_names()),
                                          "a tracker of your own derives from hasten::Tracker")});
}

const std::filesystem::path& folder_of_run(const std::string& tracker,
                                           const TrackerOptions& options) {
  if (options.folder.empty()) {
    throw ConfigError("track.logging-dir", {.what = "tracker " + tracker,
                                            .got = "no logging_dir",
                                            .expected = "the folder that it writes to",
                                            .hint = "set logging_dir"});
  }
  return options.folder;
}

bool has_mlflow_server() { return config::whole_environment().count("MLFLOW_TRACKING_URI") > 0; }

}  // namespace

const std::vector<std::string>& tracker_names() {
  static const std::vector<std::string> names = {"tensorboard", "jsonl", "csv", "mlflow"};
  return names;
}

std::vector<std::string> expanded_tracker_names(const std::vector<std::string>& names) {
  std::vector<std::string> out;
  const auto add = [&](const std::string& name) {
    if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  };
  for (const std::string& name : names) {
    const auto& known = tracker_names();
    if (name == "none") continue;
    if (name == "all") {
      for (const std::string& each : known) {
        if (each != "mlflow" || has_mlflow_server()) add(each);
      }
    } else if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw_unknown_tracker(name);
    } else {
      add(name);
    }
  }
  return out;
}

std::shared_ptr<Tracker> make_tracker(const std::string& name, const TrackerOptions& options) {
  if (name == "tensorboard")
    return std::make_shared<TensorBoardTracker>(folder_of_run(name, options));
  if (name == "jsonl") return std::make_shared<JsonLinesTracker>(folder_of_run(name, options));
  if (name == "csv") return std::make_shared<CsvTracker>(folder_of_run(name, options));
  if (name == "mlflow") return std::make_shared<MLflowTracker>(mlflow_options(options));
  throw_unknown_tracker(name);
}

}  // namespace hasten
