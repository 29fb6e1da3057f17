// File: base/file_limit.h (internal)
// Raises the number of files that this process may open at once. Most systems allow 1024 unless a
// process asks for more, because select(2) cannot handle higher numbers. A launcher does not call
// select(2) and needs a file for each connection of a rank.
//
//   raise_file_limit();
//   if (fork() == 0) {
//     restore_file_limit();
//     execve(program, arguments, environment);
//   }
//
// Thread rule: call raise_file_limit() before there are threads; restore_file_limit() is safe
// between fork and exec.
#pragma once

#include <sys/resource.h>

namespace hasten {

inline rlimit file_limit_at_start{};  // All zeros if the limit has not been raised.

// Raises the limit to the hard limit, the most that needs no privileges.
inline void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  file_limit_at_start = limit;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

inline void restore_file_limit() {
  if (file_limit_at_start.rlim_max != 0) setrlimit(RLIMIT_NOFILE, &file_limit_at_start);
}

}  // namespace hasten
