// File: trainer/run_control.h (internal)
// Decides what a run does after a step or an epoch: logs, evaluates, saves, or stops. The arguments
// and the callbacks request it, and it takes effect once all processes have agreed on it.
//
//   control.request_due_after_step();
//   control.agree({.is_saved = true});             // a collective
//   if (control.stops_training()) break;
//
// Thread rule: that of the Trainer's collectives.
#pragma once

#include <cstdint>

#include "trainer/run_plan.h"
#include "trainer/trainer_impl.h"

namespace hasten {

class Trainer::Impl::RunControl {
 public:
  RunControl(Impl& trainer, const Plan& plan) : trainer_(trainer), plan_(plan) {}

  // Forgets a request to stop the previous epoch.
  void begin_epoch();
  // Requests what is due after this step, like the Hugging Face Trainer's DefaultFlowCallback.
  void request_due_after_step();
  // Requests what is due at the end of an epoch, even if max_steps ended it early. So the last
  // steps are logged, evaluated and saved.
  void request_due_after_epoch();
  // The state of the run's checkpoints.
  struct CheckpointStatus {
    bool is_saved = false;    // a checkpoint has the current state, or will have it
    bool is_writing = false;  // this process is still writing one
  };
  // Agrees with the other processes. With enable_jit_checkpoint, a signal that stops the run
  // requests a checkpoint, unless the current state has one.
  void agree(const CheckpointStatus& status);
  // True if a process is still writing a checkpoint.
  bool is_writing() const { return agreed_.is_writing; }

  // With several processes, a request between two agreements waits for the next one.
  bool stops_training() const;
  bool stops_epoch() const;
  // The signal that stops the run; 0 if there is none.
  int stop_signal() const { return agreed_.stop_signal; }
  bool stops_on_signal() const { return agreed_.stop_signal != 0; }

 private:
  bool is_evaluation_due(IntervalStrategy strategy, double position) const;

  Impl& trainer_;
  const Plan& plan_;
  struct {
    bool stops_training = false, stops_epoch = false;
    int stop_signal = 0;
    bool is_writing = false;
  } agreed_;
};

}  // namespace hasten
