// File: prepare/compile_watch.h (internal)
// Says which batch made a device compile after the first ones, where each new shape is a program:
// the shape, or that it is no shape. Told by the main process of each machine.
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
  // `programs`: how many have been compiled so far. `wait`: until the device has done what it was
  // asked for. A program runs ahead of the device and its compiler, so a batch that compiles is
  // waited for; others are not.
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
  std::int64_t before_ = 0, batches_ = 0;
  std::set<std::string> seen_;
  std::string shape_;
  bool is_new_ = false;
  std::int64_t told_ = 0, in_a_row_ = 0;  // of known shapes
};

}  // namespace hasten
