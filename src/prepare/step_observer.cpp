#include "hasten/prepare/detail/step_observer.h"

#include <algorithm>

namespace hasten {
namespace {

// Adds the object unless the list has it already. Returns whether it was added. Drops objects that
// were destroyed.
template <class T>
bool add_new(std::vector<std::weak_ptr<T>>& known, const std::shared_ptr<T>& object) {
  std::erase_if(known, [](const std::weak_ptr<T>& each) { return each.expired(); });
  for (const std::weak_ptr<T>& each : known) {
    if (each.lock() == object) return false;
  }
  known.push_back(object);
  return true;
}

}  // namespace

void StepObservers::add(const std::shared_ptr<StepObserver>& observer) {
  observers_.push_back(observer);
  for (const auto& each : models_) {
    if (const auto module = each.lock()) observer->on_model(*module);
  }
  for (const auto& each : optimizers_) {
    if (const auto optimizer = each.lock()) observer->on_optimizer(optimizer);
  }
}

void StepObservers::remove(const StepObserver& observer) {
  std::erase_if(observers_, [&](const auto& each) { return each.get() == &observer; });
}

void StepObservers::add_model(const std::shared_ptr<torch::nn::Module>& module) {
  if (add_new(models_, module)) notify(&StepObserver::on_model, *module);
}

void StepObservers::add_optimizer(const std::shared_ptr<torch::optim::Optimizer>& optimizer) {
  if (add_new(optimizers_, optimizer)) notify(&StepObserver::on_optimizer, optimizer);
}

}  // namespace hasten
