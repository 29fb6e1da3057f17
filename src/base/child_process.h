// File: base/child_process.h (internal)
// A process that is forked from this one: how it begins, how its end is noticed, and how it is
// collected. The owner decides what it runs, and when it gets which signal.
//
//   ChildProcess child({.leads_group = true}, [&] { execve(...); });
//   if (child.error() != 0) throw ...;
//   if (child.state() != ChildState::running) status = child.reap();
//
// Throws nothing but std::bad_alloc. Thread rule: one thread at a time. The new process gets
// ForkOptions::signal_at_parent_end when the thread ends that has constructed the object.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <optional>

#include "base/descriptor.h"
#include "base/internal_api.h"

namespace hasten {

struct ForkOptions {
  // The process leads a process group of its own, which ends with it.
  bool leads_group = false;
  // The handlers of pthread_atfork do not run. After a backward pass LibTorch's forbids another one
  // in every fork, because its threads are missing there; passes on the CPU need none of them.
  bool skips_handlers = false;
  // The signal that the process gets when its parent ends; 0: none, it outlives its parent.
  int signal_at_parent_end = SIGKILL;
};

// `lost`: the process has ended, but its status is not known, because this process ignores SIGCHLD
// or other code has waited for the process. Its number may belong to another process by now.
enum class ChildState { running, ended, lost };

class HASTEN_INTERNAL_API ChildProcess {
 public:
  // Calls `run` in the new process, which ends with code 127 when `run` returns.
  ChildProcess(const ForkOptions& options, const std::function<void()>& run);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  // Kills the process, and its group, unless it has been collected.
  ~ChildProcess();

  // The errno of a fork that failed, else 0.
  int error() const { return error_; }
  pid_t number() const { return number_; }

  // Returns the state without waiting. A process that has ended is not collected, so its number is
  // not reused yet. Call it before reap() only.
  ChildState state() const { return state_after(Wait::no); }
  // Waits for the end and returns the state.
  ChildState await_end() const { return state_after(Wait::yes); }
  // Waits for the end and collects the process. Returns its status as in waitpid(2), or nothing if
  // it is lost.
  std::optional<int> reap();
  // False after reap().
  bool is_uncollected() const { return number_ > 0 && !is_collected_; }

  // Each sends a signal, unless the process has been collected.
  void send(int signal) const;
  void send_to_group(int signal) const;

 private:
  enum class Wait { no, yes };
  ChildState state_after(Wait wait) const;

  pid_t number_ = -1;
  bool leads_group_ = false, is_collected_ = false;
  int error_ = 0;
};

// Returns 0 to 255, or 128 + the signal that killed the process.
HASTEN_INTERNAL_API int exit_code_of(int status);

// A pipe whose ends are closed by exec.
struct HASTEN_INTERNAL_API ChildPipe {
  Descriptor reading, writing;

  // Returns nothing, and sets errno, if the system refuses it.
  static std::optional<ChildPipe> open();
};

}  // namespace hasten
