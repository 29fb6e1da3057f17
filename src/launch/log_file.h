// File: launch/log_file.h (internal)
// A file that keeps what a rank prints, after what an earlier job has left there. A thread writes
// it, so that a file system that hangs does not keep the launcher from anything else.
//
//   LogFile log("logs/attempt_0/rank_3.log", event);
//   log.writer().write("a line\n");
//   if (log.writer().is_full()) ...              // the file system is slow; `event` tells later
//
// The constructor throws IoError "io.write" where the file cannot be opened, and "launch.start"
// where there is no thread left. Thread rule: that of OutputWriter.
#pragma once

#include <filesystem>

#include "base/descriptor.h"
#include "launch/output_writer.h"

namespace hasten {

class LogFile {
 public:
  // Makes its folder. Where the file has text already, a line says when this part begins.
  LogFile(std::filesystem::path path, int event);

  const std::filesystem::path& path() const { return path_; }
  OutputWriter& writer() { return writer_; }

 private:
  const std::filesystem::path path_;
  const Descriptor file_;
  OutputWriter writer_;
};

}  // namespace hasten
