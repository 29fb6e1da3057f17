// File: cli/standard_output.h
// Reports standard output that could not be written, at the end of a command.
//
//   int main(int argc, char** argv) {
//     return cli::check_standard_output("hasten env", run(argc, argv));
//
// Without this check, a command whose result is on a full disk ends with success. A pipe that its
// reader has closed (`| head`) is not an error. Thread rule: the main thread.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <iostream>
#include <string>
#include <system_error>

namespace hasten::cli {

inline constexpr int kOutputError = 4;  // the exit code of IoError

// True if standard output is a pipe or a socket without a reader, or a terminal that is closed.
inline bool is_output_without_reader() {
  pollfd output{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  return poll(&output, 1, 0) > 0 && (output.revents & (POLLERR | POLLHUP)) != 0;
}

// Lets writes to a closed standard output (`>&-`) fail, in this process and in hasten-torch. Call
// it before open_closed_streams(), which would let them succeed.
inline void keep_closed_output_unwritable() {
  if (fcntl(STDOUT_FILENO, F_GETFD) >= 0) return;
  const int file = open("/dev/null", O_RDONLY);
  if (file < 0 || file == STDOUT_FILENO) return;
  dup2(file, STDOUT_FILENO);
  close(file);
}

// Returns the exit code of a command that ends with `code`: another one if its output was lost,
// which this function reports. `command` begins the message.
inline int check_standard_output(const std::string& command, int code) {
  errno = 0;
  const bool is_flushed = std::cout.flush().good() && std::fflush(stdout) == 0;
  const int error = errno;
  if ((is_flushed && std::ferror(stdout) == 0) || is_output_without_reader()) return code;
  // An earlier write may have failed, whose reason is unknown here.
  const std::string reason = error == 0 ? "an error" : std::generic_category().message(error);
  std::fprintf(stderr,
               "%s: error[io.write]: standard output cannot be written: got %s. Hint: a part of "
               "the output is lost; write it elsewhere\n",
               command.c_str(), reason.c_str());
  return code == 0 ? kOutputError : code;
}

}  // namespace hasten::cli
