// File: launch/process_handle.h (internal)
// Refers to a process by a file (pidfd) instead of its number, because the number may belong to
// another process a moment later.
//
//   const ProcessHandle process(number);
//   ... look at /proc/NUMBER ...
//   process.send(SIGKILL);                        // reaches that process or none
//
// A kernel before 5.3 has no such files; then the number is used. Throws nothing. Thread rule: one
// thread at a time.
#pragma once

#include <signal.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

namespace hasten {

// Returns a new file that is readable once the process has ended, or -1 if the kernel has none.
inline int open_process(pid_t process) {
  return static_cast<int>(syscall(SYS_pidfd_open, process, 0));
}

class ProcessHandle {
 public:
  explicit ProcessHandle(pid_t process) : process_(process), file_(open_process(process)) {}
  ProcessHandle(const ProcessHandle&) = delete;
  ProcessHandle& operator=(const ProcessHandle&) = delete;
  ~ProcessHandle() {
    if (file_ >= 0) close(file_);
  }

  bool send(int signal) const {
    if (file_ < 0) return kill(process_, signal) == 0;
    return syscall(SYS_pidfd_send_signal, file_, signal, nullptr, 0) == 0;
  }

 private:
  pid_t process_;
  int file_;
};

}  // namespace hasten
