// File: launch/shortage_report.h (internal)
// Says what keeps new ranks from connecting with the job's server. The server calls it in a thread
// of its own, and must not wait for a terminal or a pipe that nobody reads: the console does not.
//
//   JobServer server({.token = token, .on_shortage = shortage_report(console)});
//
// The console must live longer than the server. Thread rule: any thread calls the result.
#pragma once

#include <functional>
#include <string>

#include "launch/console.h"

namespace hasten {

inline std::function<void(const std::string&)> shortage_report(Console& console) {
  return [&console](const std::string& text) { console.say(text + "; see ulimit -n"); };
}

}  // namespace hasten
