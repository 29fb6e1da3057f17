// File: hasten/process/once.h
// Work that one process does for all processes, such as writing a folder or making a choice.
//
//   once(group, process.is_main_process(), [&] { write_report(path, report); });
//   const std::string newest =
//       broadcast_from_main(group, [&] { return last_checkpoint(folder).string(); });
//
// Both return in every process when the work is done. If the work throws, every process throws, so
// that none waits for one that has failed. Errors of hasten keep their code and text; other
// exceptions become Error "process.failed-elsewhere" in the processes that did not throw them. Both
// are collectives and wait no longer than the group's timeout, as hasten/process/group.h describes.
// Thread rule: the same as for the group's collectives.
#pragma once

#include <functional>
#include <string>

#include "hasten/base/detail/export.h"
#include "hasten/process/group.h"

namespace hasten {

// Does the work in the processes in which `is_worker` is true: one process in the job, or one on
// each machine.
HASTEN_API void once(const Group& group, bool is_worker, const std::function<void()>& work);

// Returns the main process's value in all processes.
HASTEN_API std::string broadcast_from_main(const Group& group,
                                           const std::function<std::string()>& compute);

}  // namespace hasten
