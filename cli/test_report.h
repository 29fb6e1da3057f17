// File: cli/test_report.h
// Prints the results of `hasten test`: a line for each result as soon as it is known, and at the
// end a summary or JSON.
#pragma once

#include <vector>

#include "test_result.h"

namespace hasten::cli {

class TestReport {
 public:
  // With `json` the lines go to standard error, and the document to standard output at the end.
  explicit TestReport(bool json) : json_(json) {}

  // Shows only failures from now on, because another machine runs the main process and shows the
  // rest.
  void show_only_failures() { only_failures_ = true; }
  void print_line(const std::string& line) const;
  void add(const TestResult& result);
  // Prints the summary, which says what the machine is ready for, and the JSON. Returns the exit
  // code.
  int end(const std::string& ready_for) const;

 private:
  std::string summary(const std::string& ready_for) const;
  bool json_, only_failures_ = false;
  std::vector<TestResult> results_;
  std::size_t failed_ = 0, skipped_ = 0;
};

}  // namespace hasten::cli
