// File: track/terminal_restore.h (internal)
// The terminal of the process while something draws on all of it: its modes, which are restored
// whatever ends the process, and what the process prints meanwhile, which is kept and printed
// afterwards.
//
//   TerminalUse use{.terminal = file, .restoring = "\033[?1049l"};
//   use_terminal(use);          // standard output and standard error are kept from here on
//   restore_terminal();         // prints what was kept
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
  // The file of the terminal; -1: this process keeps its output, as another one draws.
  int terminal = -1;
  // The control sequences that leave the screen, at most 256 bytes.
  std::string restoring;
  // The process group that gets the terminal back; 0: it has it.
  pid_t group = 0;
};

// Lets this thread change the terminal from the background, which would stop the process otherwise.
class TerminalOutputAllowed {
 public:
  TerminalOutputAllowed();
  TerminalOutputAllowed(const TerminalOutputAllowed&) = delete;
  TerminalOutputAllowed& operator=(const TerminalOutputAllowed&) = delete;
  ~TerminalOutputAllowed();

 private:
  sigset_t before_{};
};

// Notes the terminal's modes, and keeps what the process prints to its standard streams. False if
// another use has not ended, or if the system refuses a file for it.
HASTEN_INTERNAL_API bool use_terminal(const TerminalUse& use);
// Notes the control sequences, which are known once a screen is open.
HASTEN_INTERNAL_API void set_restoring(const std::string& restoring);
// Ends the use, if there is one.
HASTEN_INTERNAL_API void restore_terminal() noexcept;
// True until restore_terminal().
HASTEN_INTERNAL_API bool is_terminal_in_use();

// The last lines that were printed since use_terminal(), without control characters.
HASTEN_INTERNAL_API std::vector<std::string> kept_lines(std::size_t most);

// Blocks restore_terminal(), for a tenth of a second at most, while something is drawn. False if
// the use has ended.
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
// Objects that handle a signal for a time, such as StopOnSignal, come after it.
HASTEN_INTERNAL_API void restore_terminal_at_signals();

}  // namespace hasten
