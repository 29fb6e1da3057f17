// File: launch/rank_output.h (internal)
// The output of one rank: shows it line by line with the rank's number, keeps it in files if asked
// to, and remembers the last lines for the report of a failure.
//
//   RankOutput output(output_plan(options, round, local_rank), console);
//   output.append(bytes, 1);                     // as they come from the rank's pipe
//   if (output.must_wait(1)) ...                 // its reader is slow: leave the pipe unread
//
// In the first attempt the constructor throws IoError "io.write" if a file cannot be opened; later
// attempts continue without the file. Thread rule: the launcher's own thread.
#pragma once

#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "launch/console.h"
#include "launch/log_file.h"

namespace hasten {

// The destinations of a rank's output. Index 0 is standard output, 1 standard error.
struct OutputPlan {
  std::string prefix;  // before each shown line
  bool shown[2] = {true, true};
  std::filesystem::path file[2];  // empty if there is none; equal paths mean one file
  LogErrorPolicy log_error_policy = LogErrorPolicy::throw_error;
};

class RankOutput {
 public:
  // Creates the files and their folders.
  RankOutput(OutputPlan plan, Console& console);

  // Appends a chunk of standard output (1) or standard error (2), as it was read.
  void append(std::string_view chunk, int stream);
  // Treats an incomplete line as a whole one.
  void finish();
  // True if the stream's console or log file is full at the moment.
  bool must_wait(int stream) const;

  const std::deque<std::string>& last_lines() const { return last_; }
  // Returns the file that has the output, or the folder if there are two files; empty if there is
  // none.
  std::filesystem::path saved_path() const;

 private:
  void add_line(std::string& text, int stream);
  void write_lines(int stream);

  OutputPlan plan_;
  Console& console_;
  std::string partial_line_[2];  // lines without their end so far
  std::shared_ptr<LogFile> log_[2];
  std::string console_text_, log_text_;  // whole lines of one chunk, written together
  std::deque<std::string> last_;
};

}  // namespace hasten
