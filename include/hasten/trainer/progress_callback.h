// File: hasten/trainer/progress_callback.h
// Shows a training run: a bar with loss, rate and time left, the logged lines above it, a bar for
// each evaluation. Of several processes the first shows them.
//
//   trainer.add_callback(std::make_shared<ProgressCallback>(ProgressOptions{.bar = true}));
//
// Thread rule: as callbacks.
#pragma once

#include <memory>

#include "hasten/track/progress_bar.h"
#include "hasten/trainer/callback.h"

namespace hasten {

struct ProgressOptions {
  bool bar = true;    // a bar; otherwise only the logged lines
  bool lines = true;  // the logged metrics
};

class ProgressCallback : public TrainerCallback {
 public:
  explicit ProgressCallback(ProgressOptions options = {}) : options_(options) {}
  void on_train_begin(const TrainerEvent& event, TrainerControl&) override;
  void on_step_end(const TrainerEvent& event, TrainerControl&, double loss) override;
  void on_log(const TrainerEvent& event, TrainerControl&, const Metrics& logs) override;
  void on_evaluate_begin(const TrainerEvent& event, std::int64_t batches) override;
  void on_prediction_step(const TrainerEvent& event, TrainerControl&) override;
  void on_evaluate(const TrainerEvent& event, TrainerControl&, const Metrics&) override;
  void on_predict(const TrainerEvent& event, TrainerControl&, const Metrics&) override;
  void on_train_end(const TrainerEvent& event, TrainerControl&) override;
  bool reads_gradients() const override { return false; }

 private:
  ProgressOptions options_;
  std::unique_ptr<ProgressBar> training_, evaluation_;
  // On a device that compiles each new shape: the first steps take long, and losses are known when
  // they are logged.
  bool compiles_ = false;
  std::int64_t steps_ = 0;  // of this run
  double average_ = 0;      // of the loss, over some twenty steps: one step's alone jumps
};

}  // namespace hasten
