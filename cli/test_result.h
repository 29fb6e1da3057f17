// File: cli/test_result.h
// The result of one check of `hasten test`, and how it gets from the ranks to the command: rank 0
// writes lines of JSON into a pipe that the command opens before it starts the launcher.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "hasten/base/text.h"

namespace hasten::cli {

// The pipe's file number in every rank. The job has no other programs that could use the number.
inline constexpr int kReportFile = 3;
// The ranks run `hasten-torch test-rank SECONDS`.
inline constexpr const char* kTestRankCommand = "test-rank";
// The ranks of the watchdog's check run `hasten-torch test-hang`.
inline constexpr const char* kTestHangCommand = "test-hang";

struct TestResult {
  std::string check;
  std::string result;  // "ok", "FAIL" or "skip"
  std::string text;    // what was found, or why it failed or was skipped
  double seconds = 0;
  nlohmann::ordered_json numbers;  // for programs; null if there are none

  bool failed() const { return result == "FAIL"; }
  bool skipped() const { return result == "skip"; }
};

inline void to_json(nlohmann::ordered_json& to, const TestResult& result) {
  to = {{"check", result.check}, {"result", result.result}, {"text", result.text}};
  to["seconds"] = result.seconds;
  if (!result.numbers.is_null()) to["numbers"] = result.numbers;
}

inline void from_json(const nlohmann::ordered_json& from, TestResult& result) {
  result = {.check = from.at("check"), .result = from.at("result"), .text = from.at("text")};
  result.seconds = from.at("seconds");
  if (from.contains("numbers")) result.numbers = from.at("numbers");
}

// A check throws this if it finds a value that differs from the expected one.
struct CheckFailed : std::runtime_error {
  explicit CheckFailed(const std::string& text) : std::runtime_error(text) {}
  template <class Got, class Expected>
  CheckFailed(const std::string& what, const Got& got, const Expected& expected)
      : std::runtime_error(str(what, ": got ", got, ", expected ", expected)) {}
};

// A check throws this if it does not apply here.
struct CheckSkipped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class Got, class Expected>
void expect_equal(const std::string& what, const Got& got, const Expected& expected) {
  if (!(got == expected)) throw CheckFailed(what, got, expected);
}

}  // namespace hasten::cli
