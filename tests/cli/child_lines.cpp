// Reads a line from a child, with a deadline that is further away than one poll() can wait.
//
// The linker replaces poll() by __wrap_poll(), so that the test need not wait for 1000 seconds.
#include <poll.h>

#include <cstdio>

#include "child.h"

using namespace hasten::cli;

namespace {

constexpr int kLongestPoll = 1'000'000;  // milliseconds, see base/poll_timeout.h
int long_polls = 0;

}  // namespace

extern "C" {

int __real_poll(pollfd* files, nfds_t count, int timeout);
int __wrap_poll(pollfd* files, nfds_t count, int timeout);

// The first call with the longest timeout returns as if the time had passed.
int __wrap_poll(pollfd* files, nfds_t count, int timeout) {
  if (timeout == kLongestPoll && ++long_polls == 1) return 0;
  return __real_poll(files, count, timeout);
}
}

int main() {
  Child child({"/bin/sh", "-c", "sleep 0.2; echo there"}, {});
  const auto line = child.line(Clock::time_point::max());
  const bool is_there = line && line->text == "there";
  std::printf("%d long polls, then %s\n", long_polls, is_there ? "the line" : "no line");
  return is_there && long_polls > 1 ? 0 : 1;
}
