// File: trainer/evaluation_agreement.h (internal)
// Keeps the processes of an evaluation together: if a signal stops one of them or if one of them
// fails, all of them leave the evaluation after the same batch.
//
//   EvaluationAgreement agreement(group, /*each_batch=*/false);
//   for (const auto& batch : loader) {
//     agreement.attempt([&] { metric.add(model(batch), labels_of(batch)); });
//     if (agreement.ends_after_batch(signal)) return;
//   }
//   agreement.finish();
//
// All processes call ends_after_batch() after each batch, for the same number of batches, and then
// finish(). A process that has failed does no further work, but iterates over its batches until the
// next exchange. In that exchange all processes throw: the one that failed throws its own
// exception, and the others throw what once() (hasten/process/once.h) throws in them.
//
// A small collective may take as long as a batch of a small model, so the processes exchange only
// about twice a second. The number of batches between two exchanges is the same in all processes.
// It follows from the slowest process's time since the last exchange. An evaluation that gathers
// each batch must exchange before it gathers. In a group of one, nothing is exchanged, and an
// exception is thrown at once.
//
// Thread rule: that of the group.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>

#include "hasten/process/group.h"

namespace hasten {

class EvaluationAgreement {
 public:
  EvaluationAgreement(const Group& group, bool each_batch)
      : group_(group), each_batch_(each_batch) {}

  // Does work without collectives, unless this process has failed. Keeps what it throws.
  void attempt(const std::function<void()>& work);
  // Returns true in all processes after the same batch if a signal (not 0) stops one of them.
  bool ends_after_batch(int signal);
  // Throws in all processes if one has failed since the last exchange.
  void finish();
  // Makes all processes throw. Call it in a handler of an exception from the loop.
  [[noreturn]] void rethrow_in_all();

 private:
  using Clock = std::chrono::steady_clock;

  bool exchange(int signal);

  const Group& group_;
  const bool each_batch_;
  std::exception_ptr failure_;
  bool have_all_thrown_ = false;
  std::int64_t batches_ = 0;   // since the last exchange
  std::int64_t interval_ = 1;  // batches from that exchange to the next
  Clock::time_point exchanged_ = Clock::now();
};

}  // namespace hasten
