// File: track/terminal_restore.h (internal)
// Manages the terminal of the process while something draws on all of it. The modes of the terminal
// are restored, whatever ends the process. The output that the process prints meanwhile is
// captured, and printed afterwards.
//
//   TerminalUse use{.terminal = file, .reset_sequence = "\033[?1049l"};
//   use_terminal(use);          // standard output and standard error are captured from here on
//   restore_terminal();         // prints what was captured
//
// restore_terminal() may be called in a signal handler, and at the end of the process. Thread rule:
// any thread; one use at a time.
#pragma once

#include <signal.h>

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/internal_api.h"

namespace hasten {

struct TerminalUse {
  // The file of the terminal, or -1 if a different process draws and this one only captures its
  // output.
  int terminal = -1;
  // The control sequences that leave the screen, at most 256 bytes.
  std::string reset_sequence;
  // The process group that gets the terminal back, or 0 if it has the terminal already.
  pid_t group = 0;
};

// Lets this thread change the terminal from the background. The system would stop the process
// otherwise.
class BackgroundOutputScope {
 public:
  BackgroundOutputScope();
  BackgroundOutputScope(const BackgroundOutputScope&) = delete;
  BackgroundOutputScope& operator=(const BackgroundOutputScope&) = delete;
  ~BackgroundOutputScope();

 private:
  sigset_t before_{};
};

// Saves the terminal's modes, and captures what the process prints to its standard streams. Returns
// false if another use has not ended, or if the system refuses a file for the output.
HASTEN_INTERNAL_API bool use_terminal(const TerminalUse& use);
// Saves the control sequences, which are known once a screen is open.
HASTEN_INTERNAL_API void set_reset_sequence(const std::string& reset_sequence);
// Ends the use, if there is one.
HASTEN_INTERNAL_API void restore_terminal() noexcept;
// True from use_terminal() until restore_terminal().
HASTEN_INTERNAL_API bool is_terminal_in_use();

// Returns the last lines that were printed since use_terminal(), without control characters.
HASTEN_INTERNAL_API std::vector<std::string> captured_lines(std::size_t max_lines);

// Blocks restore_terminal() while something is drawn, for a tenth of a second at most. It is false
// if the use has ended.
class HASTEN_INTERNAL_API DrawingScope {
 public:
  DrawingScope();
  DrawingScope(const DrawingScope&) = delete;
  DrawingScope& operator=(const DrawingScope&) = delete;
  ~DrawingScope();
  explicit operator bool() const { return may_draw_; }

 private:
  bool may_draw_;
};

// Makes signals that end the process restore the terminal first. It replaces default actions only.
// Objects that handle a signal temporarily, such as StopOnSignal, are made after it.
HASTEN_INTERNAL_API void restore_terminal_at_signals();

}  // namespace hasten
