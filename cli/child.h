// File: cli/child.h
// A program that this one starts and whose words it reads, line by line, with the time they came.
//
//   Child child({"/usr/bin/env"}, {.variables = {"A=b"}});
//   while (const auto line = child.line(deadline)) ...     // nothing: it is over, or too late
//   child.wait(deadline)                                   // its code
//
// It ends with its parent, and with the object. Throws IoError "launch.start". Thread rule: one
// thread at a time, in a process that has no other when it starts one.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace hasten::cli {

using Clock = std::chrono::steady_clock;

struct ChildOptions {
  std::vector<std::string> variables;  // NAME=value, beside this process's
  bool without_ours = false;           // none of this process's HASTEN_*
  int reads = 0;  // the file number of the child that is read; 0: its output and errors
};

class Child {
 public:
  struct Line {
    std::string text;
    Clock::time_point at;
  };
  Child(const std::vector<std::string>& words, const ChildOptions& options);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  std::optional<Line> line(Clock::time_point deadline);
  // Nobody is left who could write a line.
  bool over() const { return file_ < 0; }
  // The code, 128 + n for signal n; none where it still runs then.
  std::optional<int> wait(Clock::time_point deadline);
  void send(int signal) const;

 private:
  void take();

  pid_t process_ = -1;
  int file_ = -1;
  std::optional<int> code_;
  std::string begun_;
  std::deque<Line> lines_;
};

}  // namespace hasten::cli
