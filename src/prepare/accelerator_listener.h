// File: prepare/accelerator_listener.h (internal)
// Lets a part of the library that the program has switched on, such as a dry TPU, observe the steps
// of every Accelerator. The Accelerator does not know which part that is.
//
//   set_accelerator_listener([&](StepObservers& observers) { observers.add(listener); });
//
// Thread rule: the training thread.
#pragma once

#include <functional>

#include "hasten/prepare/detail/step_observer.h"

namespace hasten {

// Calls `listener` with the observers of each Accelerator that is constructed from now on. There is
// one listener; an empty function removes it.
void set_accelerator_listener(std::function<void(StepObservers&)> listener);
// The constructor of an Accelerator calls it.
void notify_accelerator_listener(StepObservers& observers);

}  // namespace hasten
