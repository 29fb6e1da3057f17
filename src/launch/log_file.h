// File: launch/log_file.h (internal)
// A file that keeps what a rank prints, line by line as it comes, after what an earlier job has
// left there.
//
//   LogFile log("logs/attempt_0/rank_3.log");
//   const int error = log.write("a line\n");   // errno of the write, or 0
//
// Nothing is buffered, so that the file is complete when the launcher is killed. Throws IoError
// "io.write" where the file cannot be opened. Thread rule: one thread at a time.
#pragma once

#include <filesystem>
#include <string_view>

namespace hasten {

class LogFile {
 public:
  // Makes its folder. Where the file has text already, a line says when this part begins.
  explicit LogFile(const std::filesystem::path& file);
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;
  ~LogFile();

  int write(std::string_view lines);

 private:
  int file_ = -1;
};

}  // namespace hasten
