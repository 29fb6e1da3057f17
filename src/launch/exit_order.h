// File: launch/exit_order.h (internal)
// The order in which processes have ended. SIGCHLD does not show it, because one signal may report
// several ends.
//
//   ExitOrder order;
//   order.add(0, first); order.add(1, second);
//   for (const std::size_t index : order.next()) ...    // 1, 0
//
// A kernel before 5.3 does not report the order; next() is then empty. Throws nothing. Thread rule:
// one thread at a time.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <vector>

namespace hasten {

class ExitOrder {
 public:
  ExitOrder();
  ExitOrder(const ExitOrder&) = delete;
  ExitOrder& operator=(const ExitOrder&) = delete;
  ~ExitOrder();

  // Adds a process that nobody has waited for yet. next() reports it as `index`.
  void add(std::size_t index, pid_t process);
  // Returns the processes that have ended since the last call, in order.
  std::vector<std::size_t> next();

 private:
  int events_ = -1;
  std::vector<int> processes_;
};

}  // namespace hasten
