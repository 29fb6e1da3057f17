#include "track/dashboard.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "base/environment_variable.h"
#include "base/start_thread.h"
#include "hasten/base/text.h"
#include "track/terminal_restore.h"

namespace hasten {
namespace {

constexpr auto kRedrawInterval = std::chrono::milliseconds(100);
// Everything is drawn again this often, because another process may have printed on the terminal.
constexpr int kFullRedrawInterval = 50;
constexpr std::size_t kMaxReadMessages = 20;
constexpr int kCtrlL = 'L' & 0x1F, kCtrlZ = 'Z' & 0x1F;

// Opens the terminal that is a standard stream of a process. Returns -1 if the stream is not a
// terminal.
int open_stream(const std::string& process, int stream) {
  const int file =
      open(str("/proc/", process, "/fd/", stream).c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (file < 0 || isatty(file) != 0) return file;
  close(file);
  return -1;
}

// Returns the terminal that standard input and standard error of a process have.
Descriptor terminal_of(const std::string& process) {
  const Descriptor input(open_stream(process, 0));
  return input.get() < 0 ? Descriptor() : Descriptor(open_stream(process, 2));
}

DashboardTerminal terminal_of_launcher() {
  const pid_t launcher = getppid();
  DashboardTerminal found{.file = terminal_of(str(launcher))};
  if (found.file.get() < 0) {
    found.reason = "the launcher's standard input and standard error are not a terminal";
    return found;
  }
  const pid_t group = tcgetpgrp(found.file.get());
  if (group < 0 || group != getpgid(launcher)) {
    return {.reason = "the launcher does not run in the foreground of the terminal"};
  }
  // Only the foreground process group may read keys.
  const BackgroundOutputScope allowed;
  if (tcsetpgrp(found.file.get(), getpgrp()) != 0)
    return {.reason = "the launcher's terminal belongs to another session"};
  found.group = group;
  return found;
}

}  // namespace

DashboardTerminal find_terminal() {
  DashboardTerminal found{.file = terminal_of("self")};
  if (found.file.get() < 0) {
    if (!environment_variable("TORCHELASTIC_RUN_ID").empty()) return terminal_of_launcher();
    found.reason = isatty(STDIN_FILENO) != 0 ? "standard error is not a terminal"
                                             : "standard input is not a terminal";
    return found;
  }
  const pid_t group = tcgetpgrp(found.file.get());
  if (group > 0 && group != getpgrp())
    return {.reason = "the process runs in the background of the terminal"};
  return found;
}

Dashboard::Dashboard(DashboardTerminal terminal, std::function<OpenScreenFunction> open)
    : terminal_(std::move(terminal)), reason_(terminal_.reason) {
  if (!reason_.empty()) return;
  if (!use_terminal(
          {.terminal = terminal_.file.get(), .reset_sequence = "", .group = terminal_.group})) {
    reason_ = "the process already has a dashboard";
    return;
  }
  thread_ = start_thread([this, open = std::move(open)] { run(open); });
  if (thread_.joinable()) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return has_started_; });
  } else {
    reason_ = "the system cannot start another thread";
  }
  if (reason_.empty()) return;
  if (thread_.joinable()) thread_.join();
  restore_terminal();
}

Dashboard::~Dashboard() {
  if (!is_open()) return;
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  restore_terminal();
}

DashboardKeys Dashboard::take_keys() {
  const std::lock_guard lock(mutex_);
  return std::exchange(keys_, {});
}

void Dashboard::run(const std::function<OpenScreenFunction>& open) {
  OpenScreenResult opened = open(terminal_.file.get());
  {
    const std::lock_guard lock(mutex_);
    reason_ = opened.reason;
    has_started_ = true;
    if (opened.screen) set_reset_sequence(opened.reset_sequence);
  }
  changed_.notify_all();
  if (!opened.screen) return;
  for (int drawing = 0;; ++drawing) {
    const bool whole = read_keys(*opened.screen) || drawing % kFullRedrawInterval == 0;
    draw(*opened.screen, whole);
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, kRedrawInterval, [this] { return is_stopping_; })) break;
  }
  const DrawingScope scope;
  if (scope) opened.screen.reset();
  // Without `scope` the process is ending, and restore_terminal() has done the work.
  (void)opened.screen.release();
}

void Dashboard::draw(TerminalScreen& screen, bool whole) {
  const DrawingScope scope;
  if (!scope) return;
  const ScreenSize size = screen.size();
  const std::vector<std::string> messages = captured_lines(kMaxReadMessages);
  std::vector<ScreenLine> lines;
  {
    const std::lock_guard lock(mutex_);
    lines = dashboard_lines(figures_, size, screen.has_unicode(), messages);
  }
  screen.draw(lines, whole);
}

bool Dashboard::read_keys(TerminalScreen& screen) {
  bool whole = false;
  for (int key = screen.read_key(); key != TerminalScreen::kNoKey; key = screen.read_key()) {
    const std::lock_guard lock(mutex_);
    switch (key) {
      case 'q':
        keys_.stop = true;
        figures_.notice = "stopping after this step";
        break;
      case 's':
        keys_.save = true;
        figures_.notice = "saving after this step";
        break;
      case 'e':
        keys_.evaluate = true;
        figures_.notice = "evaluating after this step";
        break;
      case '\t':
        if (!figures_.metrics.empty())
          figures_.chosen = (figures_.chosen + 1) % figures_.metrics.size();
        break;
      case kCtrlL:
        whole = true;
        break;
      case kCtrlZ:
        suspend(screen);
        whole = true;
        break;
      default:
        break;
    }
  }
  return whole;
}

// A rank is not suspended, because its launcher and the other ranks would wait for it. raise()
// stops this thread and the process at once. After kill(), this thread would draw again before it
// stops.
void Dashboard::suspend(TerminalScreen& screen) const {
  if (terminal_.group != 0) return;
  screen.leave();
  raise(SIGSTOP);
}

}  // namespace hasten
