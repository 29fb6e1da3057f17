// File: hasten/process/once.h
// What one process does for all of them: a folder written once, a choice made once.
//
//   once(group, process.is_main_process(), [&] { write_report(path, report); });
//   const std::string newest = main_says(group, [&] { return last_checkpoint(folder).string(); });
//
// Both return in every process when the work is done, and what the work throws is thrown in every
// process: no process waits for one that has failed. Errors of hasten keep their code and text;
// others arrive as Error "process.failed-elsewhere". A process that waits longer than the group's
// timeout throws c10::Error. Thread rule: collectives of the group.
#pragma once

#include <functional>
#include <string>

#include "hasten/process/group.h"

namespace hasten {

// `here`: whether this process does the work; of each machine one may.
void once(const Group& group, bool here, const std::function<void()>& work);

// The main process's answer, in all.
std::string main_says(const Group& group, const std::function<std::string()>& answer);

}  // namespace hasten
