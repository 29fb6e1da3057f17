// File: launch/rank_output.h (internal)
// What one rank prints: shown line by line with its number, kept in files where asked, and the last
// lines remembered for the report of its failure.
//
//   RankOutput output(output_plan(options, round, local_rank), console);
//   output.take(bytes, 1);                       // as they come from the rank's pipe
//   // The console's reader, or the logs' file system, is slow: leave the pipe unread.
//   if (output.must_wait(1)) ...
//
// The constructor throws IoError "io.write" where a file cannot be opened that the first attempt
// needs; later ones go on without it. Thread rule: the launcher's own thread.
#pragma once

#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "launch/console.h"
#include "launch/log_file.h"

namespace hasten {

// Where it goes: index 0 is output, 1 errors.
struct OutputPlan {
  std::string prefix;  // before each shown line
  bool shown[2] = {true, true};
  std::filesystem::path file[2];  // empty: none; the same twice: one for both
  LogFailure log_failure = LogFailure::throws;
};

class RankOutput {
 public:
  // Makes the files' folders.
  RankOutput(OutputPlan plan, Console& console);

  // A piece of output (1) or errors (2), as it came.
  void take(std::string_view piece, int stream);
  // Takes the beginning of a line for the whole of it.
  void finish();
  // Whether the console or the file that the stream goes to takes nothing at the moment.
  bool must_wait(int stream) const;

  const std::deque<std::string>& last_lines() const { return last_; }
  // Where people look for what it printed: its file, or the folder of both; empty: nowhere.
  std::filesystem::path kept_in() const;

 private:
  void add_line(std::string& text, int stream);
  void put_out(int stream);

  OutputPlan plan_;
  Console& console_;
  std::string begun_[2];
  std::shared_ptr<LogFile> log_[2];
  std::string shown_, kept_;  // whole lines of one piece, put out together
  std::deque<std::string> last_;
};

}  // namespace hasten
