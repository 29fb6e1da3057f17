// File: checkpoint/group_save.h (internal)
// Saves checkpoints of all processes of a group in the background (docs/durability.md). Each
// process copies its part and continues, threads write the copies, and the main process commits
// when all copies have been written.
//
//   GroupSave save(group, [&](const std::string& text) { logger.warning(text); });
//   save.start([&] { save_safetensors(staged / "model.safetensors", tensors); },   // copies
//              is_main, [checkpoint] { checkpoint->publish(); },
//              [checkpoint] { checkpoint->rotate({.limit = 3}); });
//   save.report_if_finished();     // after each step
//   save.wait();                   // throws what has failed
//
// The threads agree through connections of their own (Group::duplicate), so they do not disturb the
// collectives of the training thread. All processes get the same error. Thread rule: the thread of
// the group's collectives.
#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string>

#include "checkpoint/background_save.h"
#include "hasten/process/group.h"

namespace hasten {

class DeferredWrites;

class GroupSave {
 public:
  // `warn` gets a sentence about a save that has failed, and about missing memory.
  GroupSave(Group group, std::function<void(const std::string&)> warn);

  // Calls `copy` in each process: safetensors that it saves are copied and written later, and other
  // files are written at once. A thread then writes the copies, and calls `publish` in the
  // processes in which `commits` is true. When all of these have published the checkpoint, the
  // thread calls `rotate` in them. Waits for an earlier save first. If `copy` throws, all processes
  // throw. If a process has too little memory for its copies, the checkpoint is written before
  // start() returns, which calls `copy` again, and `warn` gets a sentence the first time. A
  // collective.
  void start(const std::function<void()>& copy, bool commits, std::function<void()> publish,
             std::function<void()> rotate);
  // Passes the error of a save that has finished to `warn`. The other processes may still be
  // waiting.
  void report_if_finished();
  // Waits for the save in flight, and passes its error to `warn`. Returns false if it has failed.
  bool finish();
  // Waits for the save in flight, and throws its error, even if it has been passed to `warn`.
  void wait();
  bool is_in_flight() const { return background_.is_in_flight(); }
  bool has_finished() const { return background_.has_finished(); }

 private:
  bool all_have_copied(DeferredWrites& writes, const std::function<void()>& copy);
  void report_missing_memory();

  Group group_;
  std::function<void(const std::string&)> warn_;
  std::optional<Group> own_group_;  // made for the first save
  BackgroundSave background_;
  bool is_missing_memory_reported_ = false;
  std::exception_ptr logged_;  // the error of the latest save, if it was passed to `warn`
};

}  // namespace hasten
