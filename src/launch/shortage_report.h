// File: launch/shortage_report.h (internal)
// Reports what prevents new ranks from connecting to the job's server. The server calls it in its
// own thread, which must not wait for a terminal or a pipe that nobody reads. The console never
// does.
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
  return [&console](const std::string& text) { console.print_message(text + "; raise ulimit -n"); };
}

}  // namespace hasten
