// File: launch/shortage_report.h (internal)
// Prints what keeps new ranks from connecting with the job's server, from the server's own thread.
//
//   JobServer server({.token = token, .on_shortage = report_shortage});
//
// The server must not wait for a terminal or a pipe that nobody reads: a line that does not fit is
// not printed. Thread rule: any thread.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <string>

namespace hasten {

inline void report_shortage(const std::string& text) {
  pollfd errors{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (poll(&errors, 1, 0) != 1 || (errors.revents & POLLOUT) == 0) return;
  const std::string line = "hasten launch: " + text + "; see ulimit -n\n";
  [[maybe_unused]] const ssize_t told = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace hasten
