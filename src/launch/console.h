// File: launch/console.h (internal)
// The launcher's standard output and standard error: what ranks print and what the launcher says
// itself. Nothing here waits for a reader but finish().
//
//   Console console;
//   console.show("[0] loss 0.7\n", 1);
//   console.say("rank 1 has failed");           // standard error, after "hasten launch: "
//   if (console.is_full(1)) ...                 // its reader is slow: leave the ranks' output
//   unread poll(console.file()) and console.look()     // there is room again, or a reader has gone
//   away console.finish(signals, Patience::none);
//
// Both streams keep their order where they are one file, as with 2>&1. Throws IoError "io.write"
// where the system has no eventfd left. Thread rule: the launcher's own thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "launch/output_writer.h"
#include "launch/signals.h"

namespace hasten {

// How long finish() waits for a reader.
enum class Patience {
  none,       // two seconds without a byte read, five in all: the job has failed or was stopped
  unlimited,  // as every program in a pipeline, until a signal asks to end
};

class Console {
 public:
  // Opens /dev/null in the place of a standard stream that is closed, so that no other file of the
  // launcher takes its number.
  Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  ~Console();

  // Whole lines, to output (1) or errors (2).
  void show(std::string_view lines, int stream);
  void say(std::string_view message);

  bool is_full(int stream);
  // Readable when is_full() has changed, or when a stream can no longer be written.
  int file() const { return event_; }
  // Takes what file() tells, and says once of each stream that it is no longer written.
  void look();

  // Waits for the readers, then drops what nobody has read and says how many bytes. Returns the
  // signal that has asked to end meanwhile. Nothing is shown afterwards.
  std::optional<int> finish(Signals& signals, Patience patience);

 private:
  OutputWriter& of(int stream);
  bool is_one_file() const { return !writers_[1]; }
  std::size_t unwritten();
  void wait_briefly();
  void drop();

  int event_ = -1;
  std::unique_ptr<OutputWriter> writers_[2];  // the second is empty where both are one file
};

}  // namespace hasten
