// File: hasten/trainer/tracking_callback.h
// Sends the values that a Trainer logs to trackers (hasten/track/tracker.h). A Trainer adds one
// itself for the trackers that TrainingArguments::report_to names; add one for trackers of your
// own.
//
//   trainer.add_callback(std::make_shared<TrackingCallback>(
//       std::vector<std::shared_ptr<Tracker>>{own_tracker}));
//
// Trackers get the names that Hugging Face's callbacks give: "eval_loss" becomes "eval/loss",
// "test_loss" becomes "test/loss", "loss" becomes "train/loss"; MLflow gets them unchanged. At the
// start of training they get all arguments and the model's configuration. They are finished when
// the callback is destroyed, so an evaluation after training is in the same run. Only the main
// process reports. A checkpoint has the positions of the trackers, from which a resumed run
// continues. A run that begins again because it failed, or because its job was restarted before the
// first checkpoint, continues from the positions that they had when it began. An exception that a
// tracker throws when it starts ends the run. Thread rule: the same as for callbacks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/track/tracker.h"
#include "hasten/trainer/callback.h"

namespace hasten {

class HASTEN_API TrackingCallback : public TrainerCallback {
 public:
  // Makes the trackers of report_to when the run logs for the first time.
  TrackingCallback() = default;
  explicit TrackingCallback(std::vector<std::shared_ptr<Tracker>> trackers);
  TrackingCallback(const TrackingCallback&) = delete;
  TrackingCallback& operator=(const TrackingCallback&) = delete;
  ~TrackingCallback() override;
  void on_train_begin(const TrainerEvent& event, TrainerControl&) override;
  void on_log(const TrainerEvent& event, TrainerControl&, const Metrics& logs) override;
  void on_train_failed(const TrainerEvent&) override { has_failed_ = true; }
  bool reads_gradients() const override { return false; }
  bool reads_losses() const override { return false; }
  std::string name() const override { return "TrackingCallback"; }
  std::map<std::string, double> attributes() const override;
  void restore(const std::map<std::string, double>& attributes) override;

 private:
  void start(const TrainingArguments& args);
  bool resume(Tracker& tracker, std::int64_t step) const;

  std::vector<std::shared_ptr<Tracker>> trackers_;
  bool is_started_ = false;
  // The attributes in the checkpoint, until on_train_begin.
  std::map<std::string, double> restored_;
  // The attributes when the latest run began at step 0, and whether a run has failed since then.
  std::map<std::string, double> begun_;
  bool has_failed_ = false;
};

// Returns the folder of the trackers that write files. This is logging_dir, or else the variable
// TENSORBOARD_LOGGING_DIR; if run_name is set, it is the subfolder run_name of that folder. If
// neither is set, it is a subfolder of output_dir/runs named after run_name, or after the time and
// the host if run_name is not set.
HASTEN_API std::filesystem::path folder_of_trackers(const TrainingArguments& args);

}  // namespace hasten
