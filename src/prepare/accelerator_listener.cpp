#include "prepare/accelerator_listener.h"

#include <utility>

namespace hasten {
namespace {

std::function<void(StepObservers&)>& accelerator_listener() {
  static auto& one = *new std::function<void(StepObservers&)>;
  return one;
}

}  // namespace

void set_accelerator_listener(std::function<void(StepObservers&)> listener) {
  accelerator_listener() = std::move(listener);
}

void notify_accelerator_listener(StepObservers& observers) {
  if (accelerator_listener()) accelerator_listener()(observers);
}

}  // namespace hasten
