// File: launch/rank_output.h (internal)
// What one rank says: shown line by line with its number, kept in files where asked, and the last
// lines remembered for the day it fails.
#pragma once

#include <cstdio>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace hasten {

// Where it goes: index 0 is output, 1 errors.
struct OutputPlan {
  std::string prefix;  // before each shown line
  bool shown[2] = {true, true};
  std::filesystem::path file[2];  // empty: none; the same twice: one for both
};

class RankOutput {
 public:
  // Makes the files' folders. Throws IoError.
  explicit RankOutput(OutputPlan plan);

  // A piece of output (1) or errors (2), as it came.
  void take(std::string_view piece, int stream);
  // What has no end of line yet.
  void finish();

  const std::deque<std::string>& last_lines() const { return last_; }
  // Where people look for what it said: its file, or the folder of both; empty: nowhere.
  std::filesystem::path kept_in() const;

 private:
  void line(const std::string& text, int stream);

  OutputPlan plan_;
  std::string begun_[2];
  std::shared_ptr<std::FILE> log_[2];
  std::deque<std::string> last_;
};

}  // namespace hasten
