// File: prepare/compile_watch.h (internal)
// Warns about batches after the first ones that make the device compile. The warning names the new
// shape, or says that the shape is not the reason. The main process of each machine logs it.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "hasten/prepare/detail/step_observer.h"
#include "hasten/process/detail/logger.h"

namespace hasten {

class CompileWatch : public StepObserver {
 public:
  // `programs` returns the number of programs compiled so far. `wait` blocks until the device is
  // idle. Training runs ahead of the device and its compiler, so the object waits only for batches
  // that may have compiled.
  CompileWatch(std::function<std::int64_t()> programs, std::function<void()> wait, Logger logger)
      : programs_(std::move(programs)), wait_(std::move(wait)), logger_(std::move(logger)) {}

  void on_batch(const std::vector<at::Tensor>& tensors) override;

 private:
  void check_last_batch();
  void warn_about_new_shape(std::int64_t programs);
  void warn_about_recompilation(std::int64_t programs);

  std::function<std::int64_t()> programs_;
  std::function<void()> wait_;
  Logger logger_;
  // The number of programs compiled before the latest batch, and the number of batches.
  std::int64_t programs_before_ = 0, batches_ = 0;
  std::set<std::string> seen_;
  std::string shape_;
  bool is_new_ = false;
  // The number of batches of new shapes that compiled, and the number of consecutive batches of
  // known shapes that compiled.
  std::int64_t warnings_ = 0, consecutive_ = 0;
};

}  // namespace hasten
