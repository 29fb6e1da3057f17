// Carries out what `hasten anatomy` and `hasten estimate -- PROGRAM` request of the program that
// they start (commands/observe_options.h): a dry run that begins before main(), and an anatomy
// of the first Accelerator's steps, or the account of a dry TPU. Then the process ends.
#pragma once

#include <memory>

#include "hasten/prepare/step_observer.h"

namespace hasten::anatomy {

// Every Accelerator's constructor calls this; only the first one is reported on. Does nothing
// unless HASTEN_LISTEN is set or a dry TPU is active.
void attach_recorder_if_requested(const std::shared_ptr<StepObservers>& observers);

}  // namespace hasten::anatomy
