// File: launch/orphan_collector.h (internal)
// Makes this process the parent of processes whose own parent has ended, as far as they are below
// it, and reaps them when they end. Process 1 of a container is that anyway.
//
//   const OrphanCollector orphans;                    // before the first child
//   orphans.reap([&](pid_t process) { return is_rank(process); });   // on SIGCHLD
//
// What has left its process group and its session, and has emptied its environment, is still found
// as a child. Throws nothing. Thread rule: the launcher's own thread.
#pragma once

#include <sys/types.h>

#include <functional>

namespace hasten {

class OrphanCollector {
 public:
  OrphanCollector();
  OrphanCollector(const OrphanCollector&) = delete;
  OrphanCollector& operator=(const OrphanCollector&) = delete;
  ~OrphanCollector();

  // Whether whatever is below this process was started by it. A script that starts something and
  // then becomes the launcher (`monitor & exec hasten launch ...`) leaves it children that are none
  // of the job's, and process 1 is given everybody's.
  bool has_only_own_children() const { return collects_ && !is_first_; }
  // Reaps those that have ended; `is_awaited` names those that somebody else waits for.
  void reap(const std::function<bool(pid_t)>& is_awaited) const;

 private:
  const bool is_first_;
  bool collects_ = false;
  int before_ = 0;
};

}  // namespace hasten
