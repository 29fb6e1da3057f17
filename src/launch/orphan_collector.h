// File: launch/orphan_collector.h (internal)
// Makes this process the parent of descendants whose own parent has ended (a subreaper), and reaps
// them when they end. Process 1 of a container has this role anyway.
//
//   const OrphanCollector orphans;                    // before the first child
//   orphans.reap([&](pid_t process) { return is_rank(process); });   // on SIGCHLD
//
// A process that has left its process group and its session, and has emptied its environment, is
// still found as a child. Throws nothing. Thread rule: the launcher's own thread.
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

  // True if this process started all of its descendants. It is false if a script starts something
  // and then becomes the launcher (`monitor & exec hasten launch ...`), because the launcher then
  // has children that do not belong to the job. It is also false in process 1, which receives all
  // orphans.
  bool has_only_own_children() const { return collects_ && !is_first_; }
  // Reaps the children that have ended, except children that other code waits for (`is_awaited`).
  void reap(const std::function<bool(pid_t)>& is_awaited) const;

 private:
  const bool is_first_;    // true if this is process 1
  bool collects_ = false;  // true if orphans become children of this process
  int before_ = 0;         // the subreaper setting to restore
};

}  // namespace hasten
