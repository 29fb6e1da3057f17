// File: rendezvous/poller.h (internal)
// The kernel's list of the files that a server waits for (epoll), so that a pass of its loop costs
// what the ready files need, however many others are open.
//
//   Poller poller;
//   poller.watch(file, id, POLLIN);
//   for (const std::uint64_t id : poller.wait(1000)) ...
//   poller.change(file, id, POLLIN | POLLOUT);
//   poller.forget(file);                     // before it is closed
//
// A file that is ready and not served is reported again, behind the others. The constructor
// throws IoError "rendezvous.socket". Thread rule: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/descriptor.h"

namespace hasten::rendezvous {

class Poller {
 public:
  Poller();
  // `events` are those of poll(2). False: the kernel has no memory for it.
  bool watch(int file, std::uint64_t id, short events);
  void change(int file, std::uint64_t id, short events);
  void forget(int file);
  // The ids of files that are ready, some at a time; none if the time is over.
  std::vector<std::uint64_t> wait(int milliseconds);

 private:
  bool control(int operation, int file, std::uint64_t id, short events);
  Descriptor file_;
};

}  // namespace hasten::rendezvous
