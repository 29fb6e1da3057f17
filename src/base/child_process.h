// File: base/child_process.h (internal)
// A process that is forked from this one. The class starts it, notices when it ends, and collects
// it. The owner decides what the process runs and which signals it gets.
//
//   ChildProcess child({.leads_group = true}, [&] { execve(...); });
//   if (child.error() != 0) throw ...;
//   if (child.state() != ChildState::running) status = child.reap();
//
// Throws only std::bad_alloc. Thread rule: one thread at a time. The new process gets
// ForkOptions::signal_at_parent_end when the thread that constructed the object ends.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <optional>

#include "base/descriptor.h"
#include "base/internal_api.h"

namespace hasten {

struct ForkOptions {
  // The process leads its own process group. The destructor kills the whole group.
  bool leads_group = false;
  // The handlers of pthread_atfork do not run. After a backward pass in the parent, LibTorch's
  // handler forbids backward passes in the fork, because autograd's threads do not exist there.
  // Passes on the CPU do not need these threads.
  bool skips_handlers = false;
  // The signal that the process gets when its parent ends. 0 means none: the process outlives its
  // parent.
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

  // Returns the errno if the fork failed, otherwise 0.
  int error() const { return error_; }
  pid_t number() const { return number_; }

  // Returns the state without waiting. Does not collect a process that has ended, so its number is
  // not reused yet. Call it only before reap().
  ChildState state() const { return state_after(Wait::no); }
  // Waits for the end and returns the state.
  ChildState await_end() const { return state_after(Wait::yes); }
  // Waits for the end and collects the process. Returns its status as in waitpid(2), or nothing if
  // it is lost.
  std::optional<int> reap();
  // False after reap().
  bool is_unreaped() const { return number_ > 0 && !is_reaped_; }

  // Both send a signal, unless the process has been collected.
  void send(int signal) const;
  void send_to_group(int signal) const;

 private:
  enum class Wait { no, yes };
  ChildState state_after(Wait wait) const;

  pid_t number_ = -1;
  bool leads_group_ = false, is_reaped_ = false;
  int error_ = 0;
};

// Returns the exit code from 0 to 255, or 128 + the signal that killed the process.
HASTEN_INTERNAL_API int exit_code_of(int status);

// A pipe. exec closes both of its ends.
struct HASTEN_INTERNAL_API ChildPipe {
  Descriptor read_end, write_end;

  // Returns nothing, and sets errno, if the system cannot open a pipe.
  static std::optional<ChildPipe> open();
};

}  // namespace hasten
