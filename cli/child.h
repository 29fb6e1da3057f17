// File: cli/child.h
// Starts a program and reads its output line by line, with the time of each line.
//
//   Child child({"/usr/bin/env"}, {.variables = {"A=b"}});
//   while (const auto line = child.line(deadline)) ...     // nothing: no more lines, or too late
//   child.wait(deadline)                                   // the exit code
//
// The program receives SIGTERM when its parent ends, and is killed when the object is destroyed.
// The constructor throws IoError "launch.start". Thread rule: one thread at a time; the constructor
// needs a process without other threads.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/child_process.h"

namespace hasten::cli {

using Clock = std::chrono::steady_clock;

struct ChildOptions {
  std::vector<std::string> variables;  // NAME=value, in addition to this process's
  bool drop_hasten_variables = false;  // leaves out this process's HASTEN_* variables
  // The file descriptor of the child that is read; 0 means its standard output and standard error.
  int read_descriptor = 0;
};

class Child {
 public:
  struct Line {
    std::string text;
    Clock::time_point at;
  };
  Child(const std::vector<std::string>& command, const ChildOptions& options);

  // Waits for the next line. Returns nothing after the last line or the deadline.
  std::optional<Line> line(Clock::time_point deadline);
  // True if no process is left that could write a line.
  bool is_at_end() const { return file_.get() < 0; }
  // Returns the exit code, or 128 + n for signal n. Returns nothing if the program still runs at
  // the deadline.
  std::optional<int> wait(Clock::time_point deadline);
  void send(int signal) const { process_->send(signal); }

 private:
  void read_lines();

  Descriptor file_;
  std::optional<ChildProcess> process_;  // set at the end of the constructor
  std::optional<int> code_;
  std::string partial_line_;
  std::deque<Line> lines_;
};

}  // namespace hasten::cli
