// File: process/backend/link_loop.h (internal)
// A thread that reads from links, and writes the bytes for which their connections had no room
// before. It blocks all signals, and sleeps while there is nothing to do.
//
//   LinkLoop loop;
//   loop.start({&first, &second});
//
// Throws IoError "rendezvous.socket" if no more file descriptors are available, and IoError
// "io.thread" if the system lacks threads. Thread rule: any thread.
#pragma once

#include <sys/types.h>

#include <thread>
#include <vector>

#include "base/descriptor.h"
#include "process/backend/link.h"

namespace hasten {

class LinkLoop {
 public:
  LinkLoop();
  LinkLoop(const LinkLoop&) = delete;
  LinkLoop& operator=(const LinkLoop&) = delete;
  ~LinkLoop();

  // Starts the thread; call it once. The links must outlive the loop.
  void start(std::vector<Link*> links);
  void set_write_interest(Link& link, bool wants_to_write);
  // Stops polling the link.
  void drop(Link& link);

 private:
  void run(const std::vector<Link*>& links);

  bool is_same_process() const;

  const pid_t process_;  // a fork does not have the thread and must not use these files
  Descriptor poll_, stop_;
  std::thread thread_;
};

}  // namespace hasten
