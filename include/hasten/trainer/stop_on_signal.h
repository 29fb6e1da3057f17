// File: hasten/trainer/stop_on_signal.h
// Stops a training run at the end of a step when a signal arrives: a preemption, a time limit,
// Ctrl-C, a terminal that is closed.
//
//   const auto stop = std::make_shared<StopOnSignal>();  // SIGTERM, SIGINT, SIGHUP and SIGUSR1
//   trainer.add_callback(stop);
//   const TrainOutput out = trainer.train();
//   trainer.save_model();
//   stop->restore_handlers();
//   if (out.stop_signal != 0) std::exit(128 + out.stop_signal);
//
// The object owns the handlers of the signals from its constructor until restore_handlers() or its
// destructor, which restore the previous actions. No other part of a training run handles these
// signals. A signal that was already ignored when the process started stays ignored.
//
// The handler only records the signal. The run stops after the current optimizer step, and all
// processes stop at the same step, whichever of them received a signal: the request is part of the
// data that the Trainer exchanges at every step anyway. With enable_jit_checkpoint, which saves the
// gradients of an open accumulation window, the run stops after the current micro-batch (with
// elastic ranks after the step). An evaluation of the run ends after the current batch and reports
// nothing (several processes exchange their signals about twice a second during it), and no other
// evaluation of the run begins. A run that continues from a checkpoint of the step makes up for
// them before its first step (docs/formats.md). Apart from that, the run ends like any other that a
// callback stops. A later run with the same object stops before its first step.
//
// SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 may be repeated, as schedulers and terminals do: they never
// end the process.
// Another signal, such as SIGINT, that is repeated more than a second after the first acts as it
// would without this object: by default it ends the process at once. A repetition within a second
// counts as the same signal, because a terminal sends it to every process while the launcher
// forwards its own.
//
// Throws UsageError "trainer.signals-in-use" while another object exists that has not restored its
// handlers, and "trainer.bad-signal" for a number that cannot be handled. Thread rule: constructed,
// restored and destroyed on one thread at a time; signals may arrive on any thread.
#pragma once

#include <csignal>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/trainer/callback.h"

namespace hasten {

class HASTEN_API StopOnSignal : public TrainerCallback {
 public:
  explicit StopOnSignal(const std::vector<int>& signals = {SIGTERM, SIGINT, SIGHUP, SIGUSR1});
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;
  ~StopOnSignal() override;

  // The first signal that this process received while the handlers were installed, or 0.
  int received() const;
  // Restores the previous actions. May be called more than once.
  void restore_handlers();

  void on_train_begin(const TrainerEvent&, TrainerControl& control) override {
    request_stop(control);
  }
  void on_step_end(const TrainerEvent&, TrainerControl& control, double) override {
    request_stop(control);
  }
  // Without a checkpoint of the window, its work would be lost.
  void on_substep_end(const TrainerEvent& event, TrainerControl& control) override {
    const bool saves_windows = event.args.enable_jit_checkpoint && event.args.elastic_ranks == 0;
    if (saves_windows) request_stop(control);
  }
  void on_evaluate(const TrainerEvent&, TrainerControl& control, const Metrics&) override {
    request_stop(control);
  }
  void on_save(const TrainerEvent&, TrainerControl& control) override { request_stop(control); }
  void on_prediction_step(const TrainerEvent&, TrainerControl& control) override {
    request_stop(control);
  }
  bool reads_gradients() const override { return false; }
  bool reads_losses() const override { return false; }

 private:
  void install(int signal);
  void request_stop(TrainerControl& control) const;

  std::vector<int> installed_;
  bool owns_handlers_ = true;
  int received_ = 0;  // set when the handlers are restored
};

}  // namespace hasten
