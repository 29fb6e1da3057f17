// File: rendezvous/poller.h (internal)
// Waits for files with epoll, so that one pass of a server's loop takes time only for the ready
// files, no matter how many others are open.
//
//   Poller poller;
//   poller.watch(file, id, POLLIN);
//   for (const std::uint64_t ready : poller.wait(1000)) serve(ready);
//   poller.change(file, id, POLLIN | POLLOUT);
//   poller.remove(file);  // before it is closed
//
// A ready file that is not served is reported again, after the others. The constructor throws
// IoError "rendezvous.socket". Thread rule: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/descriptor.h"

namespace hasten::rendezvous {

class Poller {
 public:
  Poller();
  // `events` are poll(2) events. Both functions return false if the kernel refuses, for example
  // because it has no memory.
  bool watch(int file, std::uint64_t id, short events);
  bool change(int file, std::uint64_t id, short events);
  void remove(int file);
  // Returns the ids of at most 256 ready files, or none if the time has passed.
  std::vector<std::uint64_t> wait(int milliseconds);

 private:
  bool control(int operation, int file, std::uint64_t id, short events);
  Descriptor file_;
};

}  // namespace hasten::rendezvous
