// File: track/terminal_screen.h (internal)
// Draws lines of text on a whole terminal, and reads keys from it. The module hasten_terminal
// (src/track/terminal) implements it with ncurses, so that no other part of hasten links that
// library.
//
//   screen->draw({{{"step 3", TextStyle::strong}}});
//   if (screen->read_key() == 'q') stop();
//
// Thread rule: one thread opens a screen, uses it and destroys it.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace hasten {

enum class TextStyle { plain, strong, faint, first_curve, second_curve, warning };

struct StyledText {
  std::string text;  // UTF-8 without control characters
  TextStyle style = TextStyle::plain;
};
// A line from left to right. The screen cuts what does not fit.
using ScreenLine = std::vector<StyledText>;

struct ScreenSize {
  int columns = 80, rows = 24;
};

class TerminalScreen {
 public:
  static constexpr int kNoKey = -1;

  virtual ~TerminalScreen() = default;
  // True if the terminal shows characters beyond ASCII.
  virtual bool has_unicode() const = 0;
  // Looks for a new size of the terminal, and returns the size.
  virtual ScreenSize size() = 0;
  // Shows the lines from the top. Sends only what differs from the last drawing, or everything if
  // `whole` is true.
  virtual void draw(const std::vector<ScreenLine>& lines, bool whole) = 0;
  // Returns the next key, or kNoKey. It does not wait.
  virtual int read_key() = 0;
  // Leaves the screen and restores the terminal's modes until the next draw().
  virtual void leave() = 0;
};

// A screen, and how to undo its changes to the terminal without the library.
struct OpenScreenResult {
  std::unique_ptr<TerminalScreen> screen;  // null if it cannot be opened
  std::string reason;                      // the reason if `screen` is null
  std::string reset_sequence;              // the control sequences that leave the screen
};
// The function that the module exports, as `hasten_open_screen`. `terminal` is the file of the
// terminal, which must remain open.
using OpenScreenFunction = OpenScreenResult(int terminal);

}  // namespace hasten
