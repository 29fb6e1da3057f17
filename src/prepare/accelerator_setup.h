// File: prepare/accelerator_setup.h (internal)
// Makes the state of an Accelerator from its options and hasten launch's environment: chooses the
// device, checks the options, and forms the group of the job's processes.
//
//   const std::shared_ptr<AcceleratorState> state = make_accelerator_state(options, false);
//
// Throws the exceptions of Accelerator's constructor (hasten/accelerator.h). If the options are
// wrong, it throws before the processes meet. Thread rule: one thread at a time.
#pragma once

#include <memory>

#include "hasten/prepare/detail/accelerator_options.h"
#include "prepare/accelerator_state.h"

namespace hasten {

// In a launched job this is a collective. A dry run has its own device, so it considers only
// devices that LibTorch supports without a plugin.
std::shared_ptr<AcceleratorState> make_accelerator_state(const AcceleratorOptions& options,
                                                         bool is_dry_run);

}  // namespace hasten
