// File: hasten/trainer/stop_on_signal.h
// Stops a training run at the end of a step when a signal arrives: a preemption, a time limit,
// Ctrl-C.
//
//   const auto stop = std::make_shared<StopOnSignal>();  // SIGTERM, SIGINT and SIGUSR1
//   trainer.add_callback(stop);
//   const TrainOutput out = trainer.train();
//   trainer.save_model();
//   stop->restore_handlers();
//   if (out.stop_signal != 0) return 128 + out.stop_signal;
//
// The object owns the signals' handlers from its constructor to restore_handlers() or its
// destructor, which put back the actions that were there before. hasten handles none of these
// signals anywhere else. A signal that the process was started to ignore stays ignored.
//
// The handler only notes the signal. The run stops after the optimizer step that is under way, and
// all processes stop at the same step, whichever of them received a signal: the request travels
// with the agreement that the Trainer makes at every step anyway. An evaluation of the run ends
// after the batch that is under way (several processes exchange their signals about twice a second
// there) and reports nothing; no other evaluation of the run begins. Otherwise the run ends like
// any other that a callback stops. A later run with the same object stops before its first step.
//
// A signal that comes again more than a second after the first acts as it would without this
// object: by default it ends the process at once. A repetition within a second is taken for the
// same signal, because a scheduler may send it to every process while the launcher passes on its
// own. SIGUSR1 and SIGUSR2 are warnings, whose repetitions never end the process.
//
// Throws UsageError "trainer.signals-in-use" while another object exists that has not restored its
// handlers, and "trainer.bad-signal" for a number that cannot be handled. Thread rule: made,
// restored and destroyed on one thread at a time; signals may arrive on any thread.
#pragma once

#include <csignal>
#include <vector>

#include "hasten/trainer/callback.h"

namespace hasten {

class StopOnSignal : public TrainerCallback {
 public:
  explicit StopOnSignal(const std::vector<int>& signals = {SIGTERM, SIGINT, SIGUSR1});
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;
  ~StopOnSignal() override;

  // The first signal that this process received while the handlers were installed; 0: none.
  int received() const;
  // May be called more than once.
  void restore_handlers();

  void on_train_begin(const TrainerEvent&, TrainerControl& control) override { ask(control); }
  void on_step_end(const TrainerEvent&, TrainerControl& control, double) override { ask(control); }
  void on_evaluate(const TrainerEvent&, TrainerControl& control, const Metrics&) override {
    ask(control);
  }
  void on_save(const TrainerEvent&, TrainerControl& control) override { ask(control); }
  void on_prediction_step(const TrainerEvent&, TrainerControl& control) override { ask(control); }
  bool reads_gradients() const override { return false; }

 private:
  void install(int signal);
  void ask(TrainerControl& control) const;

  std::vector<int> installed_;
  bool owns_handlers_ = true;
  int received_ = 0;  // once the handlers are restored
};

}  // namespace hasten
