// File: hasten/track/tracker.h
// A tracker stores what a run logs, for example in TensorBoard or in a file of JSON lines. This
// header also lists the trackers that hasten has.
//
//   auto tracker = make_tracker("tensorboard", {.folder = "logs/sst2"});
//   tracker->store_init_configuration({{"learning_rate", 2e-5}, {"bf16", true}});
//   tracker->log({{"train/loss", 0.41}, {"train/grad_norm", 1.2}}, step);
//   tracker->finish();
//
// A tracker of your own derives from Tracker; Accelerator::init_trackers and TrackingCallback take
// it. Only store_init_configuration and log have to store something: a tracker ignores the kinds of
// values that it does not support. A failed write never ends a run: the tracker logs it once
// (hasten/base/log.h) and stores nothing more. The checkpoints of a Trainer or an Accelerator have
// the positions of its trackers, so that a resumed run does not store values twice. make_tracker
// throws ConfigError "track.unknown", "track.logging-dir" and what the constructors throw. Thread
// rule: one thread at a time. Source: the names are those of Accelerate's GeneralTracker.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "hasten/base/detail/export.h"

namespace hasten {

using TrackedValue = std::variant<bool, std::int64_t, double, std::string>;
// The configuration of a run: learning rate, batch size and so on, by name.
using TrackedConfiguration = std::map<std::string, TrackedValue>;
using TrackedScalars = std::map<std::string, double>;
// Numbers by which a checkpoint remembers what a tracker has stored.
using TrackerPosition = std::map<std::string, double>;

// An image in memory: rows from top to bottom, in each row its pixels, in each pixel its channels.
struct TrackedImage {
  std::int64_t height = 0, width = 0;
  std::int64_t channels = 3;  // 1 grey, 2 grey and alpha, 3 red, green and blue, 4 with alpha.
  std::span<const std::uint8_t> pixels = {};  // height * width * channels bytes.
};

class HASTEN_API Tracker {
 public:
  virtual ~Tracker() = default;
  // The name by which Accelerator::get_tracker finds it.
  virtual std::string name() const = 0;
  // Keeps the configuration of the run. Called once, before values are logged.
  virtual void store_init_configuration(const TrackedConfiguration& values) = 0;
  // Keeps the values of an optimizer step.
  virtual void log(const TrackedScalars& values, std::int64_t step) = 0;
  virtual void log_text(const std::string& /*name*/, const std::string& /*text*/,
                        std::int64_t /*step*/) {}
  // Keeps the distribution of the values; those that are not finite are left out.
  virtual void log_histogram(const std::string& /*name*/, std::span<const double> /*values*/,
                             std::int64_t /*step*/) {}
  virtual void log_image(const std::string& /*name*/, const TrackedImage& /*image*/,
                         std::int64_t /*step*/) {}
  // Returns the position after what has been stored so far, for a checkpoint. Empty if the tracker
  // cannot go back.
  virtual TrackerPosition position() const { return {}; }
  // Called in a run that resumes from a checkpoint of this step, with the position that it holds:
  // takes back what was stored after it. Returns true if the tracker still has the run's
  // configuration and values up to there, so that the configuration is not stored again.
  virtual bool resume(const TrackerPosition& /*position*/, std::int64_t /*step*/) { return false; }
  // True if the tracker keeps the names of Hugging Face's logs ("loss", "eval_loss"), not those of
  // its TensorBoard callback ("train/loss", "eval/loss").
  virtual bool keeps_log_names() const { return false; }
  // Completes the stored data. Nothing is logged afterwards. The destructor of a tracker does the
  // same.
  virtual void finish() {}
};

// A tracker that is made by its name, or one of your own.
using TrackerChoice = std::variant<std::string, std::shared_ptr<Tracker>>;

// Each option is used by the trackers that need it.
struct TrackerOptions {
  std::filesystem::path folder = {};  // The folder of the run, for trackers that write files.
  std::string project = {};           // MLflow's experiment; empty: the server's or environment's.
  std::string run_name = {};          // MLflow's name of the run; empty: the server chooses one.
};

// Makes a tracker by its name: one of tracker_names().
HASTEN_API std::shared_ptr<Tracker> make_tracker(const std::string& name,
                                                 const TrackerOptions& options);
HASTEN_API const std::vector<std::string>& tracker_names();
// Returns the names without duplicates and without "none", with "all" replaced by every tracker
// that can be used here (mlflow if MLFLOW_TRACKING_URI is set). Throws ConfigError "track.unknown".
HASTEN_API std::vector<std::string> expanded_tracker_names(const std::vector<std::string>& names);

}  // namespace hasten
