// File: hasten/trainer/callback.h
// Functions of the user that the Trainer calls during a run, and the actions that they may request.
//
//   struct Stop : hasten::TrainerCallback {
//     void on_log(const TrainerEvent&, TrainerControl& control, const Metrics& logs) override {
//       if (logs.count("loss") && logs.at("loss") < 0.1) control.should_training_stop = true;
//     }
//   };
//   trainer.add_callback(std::make_shared<Stop>());
//
// Names and times of the calls match transformers' TrainerCallback. By default every function does
// nothing. Except for on_train_failed, a callback may throw: train() then ends and throws the same.
// Thread rule: called on the training thread.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>

#include "hasten/anatomy/report.h"
#include "hasten/base/detail/export.h"
#include "hasten/options/training_arguments.h"
#include "hasten/trainer/detail/trainer_state.h"

namespace hasten {

class Accelerator;

// The state that a callback may look at. `model.as<Net>()` is the module as its own class, or null.
struct TrainerEvent {
  const TrainingArguments& args;
  const TrainerState& state;
  torch::nn::Module& model;
  // The Accelerator of the run; null only in events that a program makes itself.
  Accelerator* accelerator = nullptr;
};

// The actions that a callback may request. A flag is cleared when its action is done.
struct TrainerControl {
  bool should_training_stop = false;
  bool should_epoch_stop = false;
  bool should_save = false;
  bool should_evaluate = false;
  bool should_log = false;
  // The signal that stops the run (hasten/trainer/stop_on_signal.h), or 0. It is logged and
  // returned, and the run begins no further evaluation.
  int stop_signal = 0;
};

class HASTEN_API TrainerCallback {
 public:
  virtual ~TrainerCallback() = default;
  virtual void on_train_begin(const TrainerEvent&, TrainerControl&) {}
  virtual void on_train_end(const TrainerEvent&, TrainerControl&) {}
  // Called instead of on_train_end if train() throws. Must not throw.
  virtual void on_train_failed(const TrainerEvent&) {}
  virtual void on_epoch_begin(const TrainerEvent&, TrainerControl&) {}
  virtual void on_epoch_end(const TrainerEvent&, TrainerControl&) {}
  virtual void on_step_begin(const TrainerEvent&, TrainerControl&) {}
  // Called after a micro-batch that does not close its accumulation window.
  virtual void on_substep_end(const TrainerEvent&, TrainerControl&) {}
  // Called after the gradients are clipped and before the optimizer's step.
  virtual void on_pre_optimizer_step(const TrainerEvent&, TrainerControl&) {}
  // Called after the optimizer's step, before the gradients are cleared.
  virtual void on_optimizer_step(const TrainerEvent&, TrainerControl&) {}
  // True if on_pre_optimizer_step or on_optimizer_step reads the gradients. If no callback does,
  // the optimizer clips them as it reads them, which saves a pass over memory; the weights are the
  // same.
  virtual bool reads_gradients() const { return true; }
  // True if on_step_end uses the loss. If no callback does, a run on a GPU or a TPU reads losses
  // only when it needs them, such as for a log, and no step waits for the device.
  virtual bool reads_losses() const { return true; }
  // Called after an optimizer step. `loss` is the mean over its window. If reads_losses() is false
  // for all callbacks, on a GPU or a TPU it is the latest loss that has been read, or 0.
  virtual void on_step_end(const TrainerEvent&, TrainerControl&, double /*loss*/) {}
  virtual void on_evaluate(const TrainerEvent&, TrainerControl&, const Metrics&) {}
  virtual void on_predict(const TrainerEvent&, TrainerControl&, const Metrics&) {}
  virtual void on_save(const TrainerEvent&, TrainerControl&) {}
  virtual void on_log(const TrainerEvent&, TrainerControl&, const Metrics&) {}
  // Called before an evaluation or prediction of `batches` batches, or 0 for a stream of unknown
  // size.
  virtual void on_evaluate_begin(const TrainerEvent&, std::int64_t /*batches*/) {}
  // Called after each batch of an evaluation or prediction.
  virtual void on_prediction_step(const TrainerEvent&, TrainerControl&) {}

  // Called in the main process with the anatomy of the first steps (TrainingArguments::anatomy).
  virtual void on_anatomy(const TrainerEvent&, const anatomy::Report&) {}

  // The name under which checkpoints keep the attributes. If empty, they keep nothing.
  virtual std::string name() const { return ""; }
  // The numbers that a checkpoint keeps.
  virtual std::map<std::string, double> attributes() const { return {}; }
  // Called with the attributes of the checkpoint from which a run resumes.
  virtual void restore(const std::map<std::string, double>&) {}
};

// Stops training after `early_stopping_patience` evaluations in a row that do not improve
// metric_for_best_model by more than `early_stopping_threshold`. Throws UsageError
// "trainer.early-stopping" at the start of a run without evaluations or without that metric.
class HASTEN_API EarlyStoppingCallback : public TrainerCallback {
 public:
  explicit EarlyStoppingCallback(std::int64_t early_stopping_patience = 1,
                                 double early_stopping_threshold = 0.0);
  void on_train_begin(const TrainerEvent& event, TrainerControl&) override;
  void on_evaluate(const TrainerEvent& event, TrainerControl& control,
                   const Metrics& metrics) override;
  bool reads_gradients() const override { return false; }
  bool reads_losses() const override { return false; }
  std::string name() const override { return "EarlyStoppingCallback"; }
  std::map<std::string, double> attributes() const override;
  void restore(const std::map<std::string, double>& attributes) override;

 private:
  std::int64_t patience_;
  double threshold_;
  std::int64_t counter_ = 0;
};

}  // namespace hasten
