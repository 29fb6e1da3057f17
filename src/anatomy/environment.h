// What `hasten anatomy` and `hasten estimate -- PROGRAM` ask of the program they start
// (hasten/config/listen_options.h): a dry run from its first instruction on, and an anatomy of the
// first Accelerator's steps, after which the process ends.
#pragma once

#include <memory>

#include "hasten/prepare/step_observer.h"

namespace hasten::anatomy {

// Called by every Accelerator when it is made; without the variable it does nothing.
void listen_if_asked(const std::shared_ptr<StepObservers>& observers);

}  // namespace hasten::anatomy
