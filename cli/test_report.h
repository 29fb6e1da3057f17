// File: cli/test_report.h
// The results of `hasten test`: a line each as they come, and at the end the sum, or JSON.
#pragma once

#include <vector>

#include "test_result.h"

namespace hasten::cli {

class TestReport {
 public:
  // With `json` the lines go to standard error, and the document to standard output at the end.
  explicit TestReport(bool json) : json_(json) {}

  // Nothing but failures is shown from now on: another machine has the main process.
  void show_failures_alone() { failures_alone_ = true; }
  void say(const std::string& line) const;
  void add(const TestResult& result);
  // The last line, which says what the machine is ready for, and the JSON. Gives the exit code.
  int end(const std::string& ready_for) const;

 private:
  std::string sum(const std::string& ready_for) const;
  bool json_, failures_alone_ = false;
  std::vector<TestResult> results_;
  std::size_t failed_ = 0, skipped_ = 0;
};

}  // namespace hasten::cli
