// File: launch/console.h (internal)
// All output of the launcher: standard output and standard error, which carry the output of ranks
// and the launcher's own messages, and the log files of ranks. Only finish() waits for a reader.
//
//   open_closed_streams();                      // before the first file is opened
//   Console console;
//   console.show("[0] loss 0.7\n", 1);
//   console.say("rank 1 has failed");           // standard error, after "hasten launch: "
//   // Its reader is slow: leave the ranks' output unread.
//   if (console.is_full(1)) ...
//   // There is room again, or a reader has gone away.
//   poll(console.file()), console.look();
//   console.finish(signals, Patience::none);
//
// Both streams keep their order where they are one file, as with 2>&1. The constructor throws
// IoError "io.write" where the system has no eventfd left, "launch.start" where it has no thread.
// Thread rule: any thread calls say(), the launcher's own thread everything else.
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
  none,       // two seconds without a byte read, five in all: the job has failed or was stopped
  unlimited,  // as every program in a pipeline, until a signal asks to end
};

// Opens /dev/null in the place of a standard stream that is closed, so that no other file of this
// process takes its number.
void open_closed_streams();

// What happens where a log file cannot be opened.
enum class LogFailure { throws, is_reported };

class Console {
 public:
  Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  ~Console();

  // Whole lines, to output (1) or errors (2).
  void show(std::string_view lines, int stream);
  void say(std::string_view message);

  // A file that finish() waits for as well. Empty where it cannot be opened and that is only
  // reported. Throws what LogFile's constructor throws.
  std::shared_ptr<LogFile> open_log(const std::filesystem::path& path, LogFailure failure);

  bool is_full(int stream);
  // Readable when is_full() has changed, or when a stream can no longer be written.
  int file() const { return event_.get(); }
  // Takes what file() tells, and says once of each stream and log that it is no longer written.
  void look();

  // Waits for the readers and the logs, then drops what nobody has read and says how many bytes.
  // Returns the signal that has asked to end meanwhile. Nothing is shown afterwards.
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
  std::unique_ptr<OutputWriter> writers_[2];  // the second is empty where both are one file
  std::vector<std::shared_ptr<LogFile>> logs_;
};

}  // namespace hasten
