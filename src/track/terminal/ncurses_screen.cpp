// The module hasten_terminal: a TerminalScreen by ncurses.
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define NCURSES_NOMACROS 1  // its macros have the names of functions of the standard library
#define NCURSES_WIDECHAR 1
#include <curses.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <memory>
#include <string>
#include <utility>

#include "base/descriptor.h"
#include "track/terminal_screen.h"

namespace hasten {
namespace {

// Uses the character set of the user's environment in this thread only.
class UserLocale {
 public:
  UserLocale() : own_(newlocale(LC_CTYPE_MASK, "", nullptr)) {
    if (own_ != nullptr) before_ = uselocale(own_);
  }
  UserLocale(const UserLocale&) = delete;
  UserLocale& operator=(const UserLocale&) = delete;
  ~UserLocale() {
    if (own_ == nullptr) return;
    uselocale(before_);
    freelocale(own_);
  }

 private:
  locale_t own_, before_ = nullptr;
};

// Restores the actions of the signals for which ncurses installs handlers. Other code handles
// Ctrl-C, a new size and the suspension.
class SignalActionScope {
 public:
  SignalActionScope() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], nullptr, &before_[i]);
  }
  SignalActionScope(const SignalActionScope&) = delete;
  SignalActionScope& operator=(const SignalActionScope&) = delete;
  ~SignalActionScope() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGTSTP, SIGWINCH};
  std::array<struct sigaction, kSignals.size()> before_{};
};

// Returns the text of a capability of the terminal, such as "rmcup". Empty if the terminal lacks
// it.
std::string capability(const char* name) {
  const char* const text = tigetstr(name);
  return text == nullptr || text == reinterpret_cast<char*>(-1) ? "" : text;
}

constexpr short kFirstPair = 1, kSecondPair = 2, kWarningPair = 3;

attr_t attributes_of(TextStyle style) {
  switch (style) {
    case TextStyle::plain:
      return A_NORMAL;
    case TextStyle::strong:
      return A_BOLD;
    case TextStyle::faint:
      return A_DIM;
    case TextStyle::first_curve:
      return static_cast<attr_t>(COLOR_PAIR(kFirstPair));
    case TextStyle::second_curve:
      return static_cast<attr_t>(COLOR_PAIR(kSecondPair));
    case TextStyle::warning:
      return A_BOLD | static_cast<attr_t>(COLOR_PAIR(kWarningPair));
  }
  return A_NORMAL;
}

class NcursesScreen : public TerminalScreen {
 public:
  explicit NcursesScreen(int terminal) : terminal_(terminal) {
    input_ = fdopen(dup(terminal), "r");
    output_ = fdopen(dup(terminal), "w");
    if (input_ == nullptr || output_ == nullptr) return;
    const SignalActionScope signals;
    screen_ = newterm(nullptr, output_, input_);
    if (screen_ == nullptr) return;
    set_term(screen_);
    if (capability("cup").empty() || capability("clear").empty()) return;
    cbreak();
    noecho();
    nonl();
    nodelay(stdscr, TRUE);
    keypad(stdscr, FALSE);
    typeahead(-1);
    curs_set(0);
    leaveok(stdscr, TRUE);
    disable_suspension();
    choose_colors();
    is_usable_ = true;
  }
  NcursesScreen(const NcursesScreen&) = delete;
  NcursesScreen& operator=(const NcursesScreen&) = delete;
  ~NcursesScreen() override {
    if (screen_ != nullptr) {
      set_term(screen_);
      leave();
      delscreen(screen_);
    }
    if (input_ != nullptr) std::fclose(input_);
    if (output_ != nullptr) std::fclose(output_);
  }

  bool is_usable() const { return is_usable_; }

  bool has_unicode() const override { return std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0; }

  ScreenSize size() override {
    winsize now{};
    if (ioctl(terminal_, TIOCGWINSZ, &now) == 0 && now.ws_row > 0 && now.ws_col > 0 &&
        (now.ws_row != LINES || now.ws_col != COLS)) {
      resizeterm(now.ws_row, now.ws_col);
      is_resized_ = true;
    }
    return {.columns = COLS, .rows = LINES};
  }

  void draw(const std::vector<ScreenLine>& lines, bool whole) override {
    const SignalActionScope signals;  // the first drawing after leave() installs handlers again
    erase();
    for (int row = 0; row < LINES && row < static_cast<int>(lines.size()); ++row) {
      if (move(row, 0) != OK) break;
      for (const StyledText& part : lines[static_cast<std::size_t>(row)]) put(part);
    }
    if (whole || std::exchange(is_resized_, false) || std::exchange(has_left_, false))
      clearok(stdscr, TRUE);
    refresh();
    disable_suspension();
  }

  int read_key() override {
    const int key = getch();
    return key == ERR ? kNoKey : key;
  }

  void leave() override {
    const SignalActionScope signals;
    if (!isendwin()) endwin();
    has_left_ = true;
  }

 private:
  void put(const StyledText& part) {
    attrset(static_cast<int>(attributes_of(part.style)));
    std::mbstate_t state{};
    const char* at = part.text.data();
    const char* const end = at + part.text.size();
    while (at < end) {
      wchar_t character = 0;
      const std::size_t size =
          std::mbrtowc(&character, at, static_cast<std::size_t>(end - at), &state);
      const bool is_valid = size != 0 && size <= static_cast<std::size_t>(end - at);
      if (!is_valid) {
        character = L'?';
        state = {};
      }
      at += is_valid ? size : 1;
      const int width = wcwidth(character);
      if (width < 0) continue;
      if (getcurx(stdscr) + width > COLS) return;
      const bool ends_line = getcurx(stdscr) + width == COLS;
      addnwstr(&character, 1);
      if (ends_line) return;  // the cursor is in the next line now
    }
  }

  // Ctrl-Z is a key here, because the screen must be left first. ncurses keeps this mode.
  void disable_suspension() const {
    termios modes{};
    if (tcgetattr(terminal_, &modes) != 0 || modes.c_cc[VSUSP] == _POSIX_VDISABLE) return;
    modes.c_cc[VSUSP] = _POSIX_VDISABLE;
    tcsetattr(terminal_, TCSANOW, &modes);
  }

  static void choose_colors() {
    if (!has_colors() || start_color() != OK) return;
    use_default_colors();
    init_pair(kFirstPair, COLOR_CYAN, -1);
    init_pair(kSecondPair, COLOR_YELLOW, -1);
    init_pair(kWarningPair, COLOR_RED, -1);
  }

  UserLocale locale_;  // while the thread of the screen draws
  int terminal_;
  std::FILE *input_ = nullptr, *output_ = nullptr;
  SCREEN* screen_ = nullptr;
  bool is_usable_ = false, is_resized_ = false, has_left_ = false;
};

}  // namespace
}  // namespace hasten

extern "C" __attribute__((visibility("default"))) hasten::OpenScreenResult hasten_open_screen(
    int terminal) {
  hasten::OpenScreenResult opened;
  auto screen = std::make_unique<hasten::NcursesScreen>(terminal);
  if (!screen->is_usable()) {
    const char* const name = std::getenv("TERM");
    opened.reason = std::string("a terminal of type '") + (name == nullptr ? "" : name) +
                    "', which is unknown or cannot place text (TERM)";
    return opened;
  }
  // rmkx is not needed, because keypad() is off.
  for (const char* const name : {"sgr0", "cnorm", "rmcup"})
    opened.reset_sequence += hasten::capability(name);
  opened.screen = std::move(screen);
  return opened;
}
