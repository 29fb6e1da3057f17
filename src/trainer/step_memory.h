// File: trainer/step_memory.h (internal)
// Handles memory that runs out in a part of a training step. With auto_find_batch_size, the
// processes of a run agree on it after each part, so that all start again if one of them has run
// out.
//
//   StepMemory memory(trainer);
//   memory.run("training step 3", [&] { forward_and_backward(); });
//   if (memory.ran_out()) ...                       // after a MemoryError
//
// The gradients of a window are then computed before they are exchanged, and not at the same time.
// Otherwise the other processes would wait for the gradients of a process that has none. Each part
// costs a small collective. Throws MemoryError "trainer.out-of-memory" in every process. An error
// of a different kind is thrown only in its own process. Thread rule: that of the Trainer's
// collectives.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "trainer/trainer_impl.h"

namespace hasten {

class Trainer::Impl::StepMemory {
 public:
  explicit StepMemory(Impl& trainer);
  ~StepMemory();
  StepMemory(const StepMemory&) = delete;
  StepMemory& operator=(const StepMemory&) = delete;

  // Sets how dry runs repeat a step to explain a failure. Without it there is no explanation.
  void set_retry(ExplainableStep retry) { retry_ = std::move(retry); }
  void set_rows(std::int64_t rows) { retry_.rows = rows; }
  // Runs a part of a step. All processes call it for the same parts.
  void run(const std::string& name, const std::function<void()>& part);
  // True if memory ran out in a part, in this process or, if the processes agree, in another one.
  // False if it ran out in the exchange itself, because the processes cannot agree on that.
  bool ran_out() const { return ran_out_; }

 private:
  // Returns the highest rank that has run out of memory, or -1. A collective.
  std::int64_t rank_without_memory(bool is_own) const;
  void agree();
  [[noreturn]] void report(const std::string& name, const std::string& text,
                           const anatomy::RequestedBytes& requested);

  Impl& trainer_;
  const bool agrees_;
  std::string name_;  // the name of the part that runs
  ExplainableStep retry_;
  std::optional<anatomy::StepMark> mark_;  // the mark of the part that runs
  bool has_agreed_ = false;                // in this part, before the exchange
  bool ran_out_ = false;
  std::optional<ExchangeHook> before_exchange_;
};

}  // namespace hasten
