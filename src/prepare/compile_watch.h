// File: prepare/compile_watch.h (internal)
// Warns if a batch after the first ones makes the device compile, which every new shape does: names
// the shape, or says that the shape is not the reason. The main process of each machine logs it.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "hasten/prepare/step_observer.h"
#include "hasten/process/logger.h"

namespace hasten {

class CompileWatch : public StepObserver {
 public:
  // `programs` returns how many programs have been compiled so far. `wait` blocks until the device
  // has finished its work. Training runs ahead of the device and its compiler, so a batch that may
  // have compiled is waited for; others are not.
  CompileWatch(std::function<std::int64_t()> programs, std::function<void()> wait, Logger logger)
      : programs_(std::move(programs)), wait_(std::move(wait)), logger_(std::move(logger)) {}

  void on_batch(const std::vector<at::Tensor>& tensors) override;

 private:
  void judge_last_batch();
  void tell_new_shape(std::int64_t programs);
  void tell_known_shape(std::int64_t programs);

  std::function<std::int64_t()> programs_;
  std::function<void()> wait_;
  Logger logger_;
  // Programs compiled before the latest batch, and the number of batches.
  std::int64_t before_ = 0, batches_ = 0;
  std::set<std::string> seen_;
  std::string shape_;
  bool is_new_ = false;
  // Batches of new shapes that compiled, and consecutive batches of known shapes that did.
  std::int64_t told_ = 0, in_a_row_ = 0;
};

}  // namespace hasten
