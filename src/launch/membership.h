// File: launch/membership.h (internal)
// Who decides when this machine's ranks start, stop and start again: with one machine the launcher
// itself, with several what they agree on.
//
//   while (true) {
//     const Next next = membership.next();                   // a round, or the end
//     ... the ranks run; membership is told what becomes of them, and asked whether to stop ...
//   }
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "hasten/launch/launcher.h"

namespace hasten {

// The end of the job, with what the launcher's own output has not told yet.
struct End {
  int code = 0;
  std::string reason;
};
using Next = std::variant<Round, End>;

// All ranks of this machine are to stop.
struct Order {
  bool after_failure = false;  // those that wait for a dead rank need no long grace
};

class Membership {
 public:
  virtual ~Membership() = default;

  virtual Next next() = 0;

  // While a round runs. What the launcher polls for it; -1: nothing.
  virtual int file() const { return -1; }
  virtual short events() const { return 0; }
  // How often order() is asked without anything to read: milliseconds; -1: never.
  virtual int longest_wait() const { return -1; }
  // Reads what has come: whether all ranks are to stop.
  virtual std::optional<Order> order() { return std::nullopt; }
  // The first of this machine's ranks has failed, or they could not be started.
  virtual void failed(int code, const std::string& reason) = 0;
  virtual void ended() = 0;              // all of this machine's ranks, well
  virtual void leaving(int signal) = 0;  // the launcher was asked to end
};

}  // namespace hasten
