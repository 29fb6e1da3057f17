// File: prepare/join_participant.h (internal)
// Takes part in the exchanges of the other processes at the end of join_uneven_inputs, until all
// have run out of data, and then copies their state (hasten/prepare/detail/join.h).
//
//   JoinParticipant(state).run();
//
// Throws UsageError "prepare.join-call", "prepare.join-order", "prepare.join-state". Thread rule:
// that of the Accelerator.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "prepare/gradient_sync.h"

namespace hasten {

class AcceleratorState;

class JoinParticipant {
 public:
  // `state` must be inside join_uneven_inputs, in a process without data.
  explicit JoinParticipant(AcceleratorState& state);

  // Returns when all processes have run out of data.
  void run();

 private:
  void take_part(const JoinMessage& message);
  void take_part_in_backward(const JoinMessage& message);
  void take_part_in_early_exchange(const std::vector<DataParallelModel*>& models,
                                   std::int64_t bits);
  // Returns this process's open window of one of these models, or null if there is none.
  std::shared_ptr<AccumulationWindow> open_window_of(
      const std::vector<DataParallelModel*>& models) const;
  void copy_state_from_last_rank();

  AcceleratorState& state_;
  GradientSync& gradients_;
  Join& join_;
  // The bits of the models that this process exchanged without data. Their gradients are not its
  // own.
  std::int64_t exchanged_without_data_ = 0;
  // The bits of the models that keep a share of an early exchange until the end of the window.
  std::int64_t exchanged_early_ = 0;
  // The window that the others are closing: this process's own open one, or an empty one.
  std::shared_ptr<AccumulationWindow> closing_window_;
};

}  // namespace hasten
