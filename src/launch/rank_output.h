// File: launch/rank_output.h (internal)
// What one rank says: shown line by line with its number, kept in a file where asked, and the last
// lines remembered for the day it fails.
#pragma once

#include <cstdio>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace hasten {

class RankOutput {
 public:
  // `prefix` before each shown line; `shown`: or nothing is. `file`: empty for none. Throws
  // IoError.
  RankOutput(std::string prefix, bool shown, const std::filesystem::path& file);

  // A piece of output (1) or errors (2), as it came.
  void take(std::string_view piece, int stream);
  // What has no end of line yet.
  void finish();

  const std::deque<std::string>& last_lines() const { return last_; }
  const std::filesystem::path& file() const { return file_; }

 private:
  void line(const std::string& text, int stream);

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string prefix_, begun_[3];
  bool shown_;
  std::filesystem::path file_;
  std::unique_ptr<std::FILE, Close> log_;
  std::deque<std::string> last_;
};

}  // namespace hasten
