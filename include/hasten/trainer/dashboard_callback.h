// File: hasten/trainer/dashboard_callback.h
// Shows a training run on the whole terminal: curves of the losses and metrics, progress and the
// time left, rates, memory, and a line for each rank; keys stop it, save it and evaluate it.
//
//   trainer.add_callback(std::make_shared<DashboardCallback>());
//
// It needs the module libhasten_terminal.so, which is built if ncurses is installed (Debian:
// libncurses-dev), and a terminal as the standard input and standard error of the process, or of
// the launcher that started it. Otherwise it logs the reason and shows what ProgressCallback
// (hasten/trainer/progress_callback.h) shows. Create it in every process of a job; rank 0 draws.
//
// Keys: q stops the run after the current step, with a checkpoint if enable_jit_checkpoint is set,
// s saves a checkpoint, e evaluates, Tab chooses the next metric, Ctrl-L draws everything again,
// Ctrl-Z suspends a single process. All ranks agree on
// the keys as they agree on a signal. Output that the processes print while the dashboard is shown
// is kept and printed when it ends.
//
// The terminal is restored when the run ends or throws, and if the process exits or is ended by a
// signal other than SIGKILL. For that, the object installs handlers for the signals that have the
// default action. Create it before a StopOnSignal. Thread rule: the same as for callbacks; a
// separate thread draws.
#pragma once

#include <memory>

#include "hasten/base/detail/export.h"
#include "hasten/trainer/callback.h"
#include "hasten/trainer/progress_callback.h"

namespace hasten {

class HASTEN_API DashboardCallback : public TrainerCallback {
 public:
  // `fallback` sets what is shown if the dashboard cannot be shown.
  explicit DashboardCallback(ProgressOptions fallback = {});
  ~DashboardCallback() override;

  void on_train_begin(const TrainerEvent& event, TrainerControl&) override;
  void on_step_end(const TrainerEvent& event, TrainerControl& control, double loss) override;
  void on_log(const TrainerEvent& event, TrainerControl&, const Metrics& logs) override;
  void on_evaluate_begin(const TrainerEvent& event, std::int64_t batches) override;
  void on_prediction_step(const TrainerEvent& event, TrainerControl&) override;
  void on_evaluate(const TrainerEvent& event, TrainerControl& control, const Metrics&) override;
  void on_predict(const TrainerEvent& event, TrainerControl&, const Metrics&) override;
  void on_save(const TrainerEvent& event, TrainerControl&) override;
  void on_train_end(const TrainerEvent& event, TrainerControl&) override;
  void on_anatomy(const TrainerEvent& event, const anatomy::Report& report) override;
  void on_train_failed(const TrainerEvent& event) override;
  bool reads_gradients() const override { return false; }
  bool reads_losses() const override { return false; }

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hasten
