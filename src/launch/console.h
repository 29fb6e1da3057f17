// File: launch/console.h (internal)
// Writes all output of the launcher: the ranks' output and its own messages to standard output and
// standard error, and the ranks' log files. Only finish() waits for a reader. The destructor waits
// for half a second.
//
//   open_closed_streams();                      // before the first file is opened
//   Console console;
//   console.print_output("[0] loss 0.7\n", 1);
//   console.print_message("rank 1 has failed");   // to standard error, after "hasten launch: "
//   if (console.is_full(1)) ...                   // its reader is slow: leave the pipes unread
//   poll(console.descriptor()), console.handle_event();   // there is room, or a reader is gone
//   console.finish(signals, FinishPolicy::brief);
//
// If both streams are one file, as with 2>&1, their order is kept. The constructor throws IoError
// "io.write" if the system has no eventfd left, "launch.start" if it has no thread left. Thread
// rule: print_message() from any thread, everything else from the launcher's own thread.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "launch/log_file.h"
#include "launch/output_writer.h"
#include "launch/signals.h"

namespace hasten {

// The time for which finish() waits for a reader.
enum class FinishPolicy {
  brief,       // 2 seconds without progress, 5 at most: the job has failed or was stopped
  until_read,  // until a signal asks the launcher to end, as in any pipeline
};

// The reaction of open_log() to a log file that cannot be opened.
enum class LogErrorPolicy { throw_error, report };

class Console {
 public:
  Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  ~Console();

  // Writes whole lines to standard output (1) or standard error (2).
  void print_output(std::string_view lines, int stream);
  // Writes a message of the launcher to standard error.
  void print_message(std::string_view message);

  // Opens a log file. finish() waits for it, too. If the file cannot be opened, throws what LogFile
  // throws, or, with LogErrorPolicy::report, reports the error and returns null.
  std::shared_ptr<LogFile> open_log(const std::filesystem::path& path, LogErrorPolicy policy);

  // True if the caller should write no more lines for now.
  bool is_full(int stream);
  // Becomes readable when is_full() changes, or when a stream or log can no longer be written.
  int descriptor() const { return event_.get(); }
  // Resets descriptor(), and reports once each stream and log that can no longer be written.
  void handle_event();

  // Waits for the readers and the logs, then drops the remaining output and reports its size.
  // Returns the signal that asked the launcher to end during the wait, if there was one. Shows
  // nothing afterwards.
  std::optional<int> finish(Signals& signals, FinishPolicy policy);

 private:
  OutputWriter& writer_for(int stream);
  bool is_one_file() const { return !writers_[1]; }
  std::size_t unwritten();
  void report_log_errors();
  void wait_briefly();
  void drop_logs();
  void drop_unwritten();

  const Descriptor event_;
  std::unique_ptr<OutputWriter> writers_[2];  // the second is null if both streams are one file
  std::vector<std::shared_ptr<LogFile>> logs_;
};

}  // namespace hasten
