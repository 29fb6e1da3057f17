// File: hasten/trainer/callback.h
// Code of yours at the points of a training run, and what it may ask for.
//
//   struct Stop : hasten::TrainerCallback {
//     void on_log(const TrainerEvent& event, TrainerControl& control, const Metrics& logs) override
//     {
//       if (logs.count("loss") && logs.at("loss") < 0.1) control.should_training_stop = true;
//     }
//   };
//   trainer.add_callback(std::make_shared<Stop>());
//
// Names and points are transformers' TrainerCallback's. Every function may be left out.
// Thread rule: called on the thread that trains.
#pragma once

#include <cstdint>
#include <string>

#include "hasten/config/training_arguments.h"
#include "hasten/trainer/trainer_state.h"

namespace hasten {

class PreTrainedModel;

// What a callback may look at.
struct TrainerEvent {
  const TrainingArguments& args;
  const TrainerState& state;
  PreTrainedModel& model;
};

// What a callback may ask for; cleared once it is done.
struct TrainerControl {
  bool should_training_stop = false;
  bool should_epoch_stop = false;
  bool should_save = false;
  bool should_evaluate = false;
  bool should_log = false;
  // The signal for which the run stops (hasten/trainer/stop_on_signal.h); 0: none. It is logged and
  // returned, and the run begins no evaluation after it.
  int stop_signal = 0;
};

class TrainerCallback {
 public:
  virtual ~TrainerCallback() = default;
  virtual void on_train_begin(const TrainerEvent&, TrainerControl&) {}
  virtual void on_train_end(const TrainerEvent&, TrainerControl&) {}
  virtual void on_epoch_begin(const TrainerEvent&, TrainerControl&) {}
  virtual void on_epoch_end(const TrainerEvent&, TrainerControl&) {}
  virtual void on_step_begin(const TrainerEvent&, TrainerControl&) {}
  // After a micro-batch that does not close its window.
  virtual void on_substep_end(const TrainerEvent&, TrainerControl&) {}
  // After the gradients were clipped and before the optimizer's step.
  virtual void on_pre_optimizer_step(const TrainerEvent&, TrainerControl&) {}
  // After the optimizer's step; the gradients are still there.
  virtual void on_optimizer_step(const TrainerEvent&, TrainerControl&) {}
  // Whether the two above look at the gradients. Where no callback does, the optimizer clips them
  // as it reads them, which saves a pass over memory; the weights are the same.
  virtual bool reads_gradients() const { return true; }
  // After an optimizer step; `loss` is the mean over its window. On a TPU losses are read when they
  // are logged: there it is the mean of the steps before the last log, 0 before the first one.
  virtual void on_step_end(const TrainerEvent&, TrainerControl&, double /*loss*/) {}
  virtual void on_evaluate(const TrainerEvent&, TrainerControl&, const Metrics&) {}
  virtual void on_predict(const TrainerEvent&, TrainerControl&, const Metrics&) {}
  virtual void on_save(const TrainerEvent&, TrainerControl&) {}
  virtual void on_log(const TrainerEvent&, TrainerControl&, const Metrics&) {}
  // Before an evaluation of `batches` batches, and after each of them.
  virtual void on_evaluate_begin(const TrainerEvent&, std::int64_t /*batches*/) {}
  virtual void on_prediction_step(const TrainerEvent&, TrainerControl&) {}

  // What is to survive a resume, by name; empty: nothing.
  virtual std::string name() const { return ""; }
  virtual std::map<std::string, double> attributes() const { return {}; }
  virtual void restore(const std::map<std::string, double>&) {}
};

// Ends training after `patience` evaluations without an improvement of more than `threshold` of
// metric_for_best_model.
class EarlyStoppingCallback : public TrainerCallback {
 public:
  explicit EarlyStoppingCallback(std::int64_t early_stopping_patience = 1,
                                 double early_stopping_threshold = 0.0);
  void on_train_begin(const TrainerEvent& event, TrainerControl&) override;
  void on_evaluate(const TrainerEvent& event, TrainerControl& control,
                   const Metrics& metrics) override;
  bool reads_gradients() const override { return false; }
  std::string name() const override { return "EarlyStoppingCallback"; }
  std::map<std::string, double> attributes() const override;
  void restore(const std::map<std::string, double>& attributes) override;

 private:
  std::int64_t patience_;
  double threshold_;
  std::int64_t counter_ = 0;
};

}  // namespace hasten
