// File: hasten/trainer/progress_callback.h
// Shows a training run: a bar with loss, rate and remaining time, the logged lines above it, and a
// bar for each evaluation. With several processes only rank 0 shows them.
//
//   trainer.add_callback(std::make_shared<ProgressCallback>(ProgressOptions{.bar = true}));
//
// Output goes to standard error. Thread rule: the same as for callbacks.
#pragma once

#include <memory>

#include "hasten/base/detail/export.h"
#include "hasten/track/progress_bar.h"
#include "hasten/trainer/callback.h"

namespace hasten {

struct ProgressOptions {
  bool bar = true;    // show bars
  bool lines = true;  // show the logged metrics, one line for each log
};

class HASTEN_API ProgressCallback : public TrainerCallback {
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
  bool reads_losses() const override { return false; }

 private:
  ProgressOptions options_;
  std::unique_ptr<ProgressBar> training_, evaluation_;
  // True on a device that compiles each new shape (a TPU), on which the first steps take long.
  bool compiles_ = false;
  // True on a device that reads losses only when they are logged. The logged losses are then shown.
  bool shows_logs_ = false;
  // The steps of this run.
  std::int64_t steps_ = 0;
  // The running mean of the loss over about twenty steps, because the losses of single steps vary a
  // lot.
  double average_ = 0;
};

}  // namespace hasten
