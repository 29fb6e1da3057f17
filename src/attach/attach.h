// File: attach/attach.h (internal)
// The functions that connect libhasten with the two libraries that `hasten anatomy PROGRAM`,
// `hasten estimate -- PROGRAM` and `hasten plan -- PROGRAM` inject into an unmodified program. A
// program that is started in any other way has neither library, and nothing in libhasten reads
// their variables (commands/observe_options.h).
//
//   libhasten_preload.so   is in LD_PRELOAD, so it is loaded into the program and into everything
//                          that the program starts, such as a shell. It links the C library alone
//                          and does nothing in a process without libhasten; in others it loads
//   libhasten_attach.so    which begins the requested dry run, changes the arguments of Trainers,
//                          reports on the first Accelerator, and ends the process.
//
// Thread rule: the training thread.
#pragma once

#include <memory>

#include "base/internal_api.h"

namespace hasten {
class StepObservers;
struct TrainingArguments;
}  // namespace hasten

extern "C" {

// libhasten_preload.so defines these three functions. In any other process they are null. The
// constructor of every Accelerator calls the first before it chooses its device, and the second
// when it has its observers. The constructor of every Trainer calls the third before it reads its
// arguments.
[[gnu::weak]] HASTEN_INTERNAL_API void hasten_on_accelerator_begin();
[[gnu::weak]] HASTEN_INTERNAL_API void hasten_on_accelerator_constructed(
    const std::shared_ptr<hasten::StepObservers>& observers);
[[gnu::weak]] HASTEN_INTERNAL_API void hasten_on_trainer_begin(
    hasten::TrainingArguments& arguments);

// libhasten_attach.so defines the three functions below.
//
// Begins the requested dry run, if any, at the first call. On an error it prints a message and ends
// the process, because nobody could catch an exception before main().
HASTEN_INTERNAL_API void hasten_begin_dry_run();

// Reports the requested steps of the program's first Accelerator and ends the process after them.
HASTEN_INTERNAL_API void hasten_report_steps(
    const std::shared_ptr<hasten::StepObservers>& observers);

// Writes the arguments of the program's first Trainer to a file, and gives each Trainer the
// settings of the requested plan, if any. Throws ConfigError "config.*" for settings that are not
// arguments.
HASTEN_INTERNAL_API void hasten_change_arguments(hasten::TrainingArguments& arguments);

}  // extern "C"
