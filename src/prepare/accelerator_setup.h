// File: prepare/accelerator_setup.h (internal)
// Makes the state of an Accelerator from its options and hasten launch's environment: chooses the
// device, checks the options, and forms the group of the job's processes.
//
//   const std::shared_ptr<AcceleratorState> state = make_accelerator_state(options, false);
//
// Throws what the constructor of Accelerator throws (hasten/accelerator.h), before the processes
// meet if the options are wrong. Thread rule: one thread at a time.
#pragma once

#include <memory>

#include "hasten/prepare/accelerator_options.h"
#include "prepare/accelerator_state.h"

namespace hasten {

// In a launched job this is a collective. A dry run has a device of its own, so that only the
// devices that LibTorch has without a plugin are considered.
std::shared_ptr<AcceleratorState> make_accelerator_state(const AcceleratorOptions& options,
                                                         bool is_dry_run);

}  // namespace hasten
