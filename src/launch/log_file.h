// File: launch/log_file.h (internal)
// A file to which the output of a rank is appended. A thread writes it, so that a file system that
// hangs does not block the launcher.
//
//   LogFile log("logs/attempt_0/rank_3.log", event);
//   log.writer().write("a line\n");
//   if (log.writer().is_full()) ...              // the file system is slow; see OutputWriter
//
// The constructor throws IoError "io.write" if the folder cannot be created or the file cannot be
// opened, and "launch.start" if the system has no thread left. Thread rule: as for OutputWriter.
#pragma once

#include <filesystem>

#include "base/descriptor.h"
#include "launch/output_writer.h"

namespace hasten {

class LogFile {
 public:
  // Also creates the folder. If the file has text already, writes a line that marks where this job
  // begins.
  LogFile(std::filesystem::path path, int event);

  const std::filesystem::path& path() const { return path_; }
  OutputWriter& writer() { return writer_; }

 private:
  const std::filesystem::path path_;
  const Descriptor file_;
  OutputWriter writer_;
};

}  // namespace hasten
