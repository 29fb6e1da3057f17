// File: launch/console.h (internal)
// Writes all output of the launcher: the output of ranks and the launcher's own messages to
// standard output and standard error, and the ranks' log files. Only finish() waits for a reader;
// the destructor does so for half a second at most.
//
//   open_closed_streams();                      // before the first file is opened
//   Console console;
//   console.show("[0] loss 0.7\n", 1);
//   console.say("rank 1 has failed");           // to standard error, after "hasten launch: "
//   if (console.is_full(1)) ...                 // its reader is slow: leave the pipes unread
//   poll(console.file()), console.look();       // there is room again, or a reader has gone away
//   console.finish(signals, Patience::none);
//
// If standard output and standard error are one file, as with 2>&1, the order of what is written to
// them is kept. The constructor throws IoError "io.write" if the system has no eventfd left, and
// "launch.start" if it has no thread left. Thread rule: say() from any thread, everything else from
// the launcher's own thread.
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

// How long finish() waits for a reader.
enum class Patience {
  // For a job that has failed or was stopped: until no byte has been read for two seconds, and five
  // seconds at most.
  none,
  // Until everything is read, like any program in a pipeline, or a signal asks to end.
  unlimited,
};

// Opens /dev/null for each standard stream that is closed, so that no other file of this process
// gets its number.
void open_closed_streams();

// Says what open_log() does if a log file cannot be opened.
enum class LogFailure { throws, is_reported };

class Console {
 public:
  Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  ~Console();

  // Writes whole lines to standard output (1) or standard error (2).
  void show(std::string_view lines, int stream);
  // Writes a message of the launcher to standard error, and a newline if it has none.
  void say(std::string_view message);

  // Opens a log file; finish() waits until it is written. If it cannot be opened, throws what
  // LogFile's constructor throws, or with LogFailure::is_reported reports it and returns null.
  std::shared_ptr<LogFile> open_log(const std::filesystem::path& path, LogFailure failure);

  // True if the stream's reader is slow, so that the caller should write no more lines for now.
  bool is_full(int stream);
  // An eventfd, readable when is_full() has changed or when a stream or log cannot be written.
  int file() const { return event_.get(); }
  // Resets file(), and reports each stream and each log that cannot be written, once.
  void look();

  // Waits for the readers and the logs, then drops what is left and reports its number of bytes.
  // Returns the signal that has asked to end meanwhile, if any. Nothing is shown afterwards.
  std::optional<int> finish(Signals& signals, Patience patience);

 private:
  OutputWriter& of(int stream);
  bool is_one_file() const { return !writers_[1]; }
  std::size_t unwritten();
  void look_at_logs();
  void wait_briefly();
  void drop_logs();
  void drop();

  const Descriptor event_;
  std::unique_ptr<OutputWriter> writers_[2];  // the second is null if both streams are one file
  std::vector<std::shared_ptr<LogFile>> logs_;
};

}  // namespace hasten
