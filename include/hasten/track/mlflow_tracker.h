// File: hasten/track/mlflow_tracker.h
// A tracker that sends what a run logs to an MLflow server through its REST API.
//
//   MLflowTracker tracker({.tracking_uri = "http://node1:5000", .experiment = "sst2"});
//   tracker.log({{"loss", 0.41}}, step);
//   tracker.finish();
//
// log() only adds to a queue. A thread of the tracker sends the values in batches, so that a slow
// server never slows a step. If the server does not answer, the tracker logs this once, keeps the
// values and tries again; the oldest values are dropped if more than `max_queued_values` wait.
// finish() and the destructor wait at most 20 seconds for the remaining values, and log how many
// values were not sent. The configuration becomes the run's parameters, without values of more than
// 6,000 bytes.
//
// The constructor throws ConfigError "track.http-address"; nothing else throws. Thread rule: one
// thread at a time. Source: MLflow's REST API 2.0.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "hasten/base/detail/export.h"
#include "hasten/track/tracker.h"

namespace hasten {

struct MLflowOptions {
  std::string tracking_uri = {};           // http://HOST:PORT, with a path if the server has one.
  std::string experiment = "Default";      // It is created if it is missing.
  std::string run_name = {};               // If empty, the server chooses one.
  std::string run_id = {};                 // A run to continue; a new run if empty.
  std::string token = {};                  // Sent as "Authorization: Bearer" if not empty.
  std::size_t max_queued_values = 100000;  // The largest number of waiting values.
};

// Returns the options that MLflow's variables set: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME,
// MLFLOW_RUN_ID and MLFLOW_TRACKING_TOKEN. Throws ConfigError "track.mlflow-uri" without the first.
HASTEN_API MLflowOptions mlflow_options(const TrackerOptions& options);

class HASTEN_API MLflowTracker : public Tracker {
 public:
  explicit MLflowTracker(const MLflowOptions& options);
  ~MLflowTracker() override;
  std::string name() const override { return "mlflow"; }
  void store_init_configuration(const TrackedConfiguration& values) override;
  void log(const TrackedScalars& values, std::int64_t step) override;
  bool keeps_log_names() const override { return true; }
  void finish() override;

 private:
  class Sender;
  std::unique_ptr<Sender> sender_;
};

}  // namespace hasten
