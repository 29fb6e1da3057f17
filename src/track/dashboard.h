// File: track/dashboard.h (internal)
// The dashboard of a run on a terminal: a thread draws the figures, reads keys, and follows changes
// of the terminal's size.
//
//   DashboardTerminal terminal = find_terminal();
//   Dashboard dashboard(std::move(terminal), opener);
//   if (dashboard.is_open()) dashboard.update([](DashboardFigures& f) { ++f.step; });
//
// The terminal is restored when the object is destroyed, when the process ends in any way but
// SIGKILL, and at signals if restore_terminal_at_signals() was called (track/terminal_restore.h).
// Throws nothing but std::bad_alloc. Thread rule: constructed and destroyed on one thread; the rest
// on any thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/descriptor.h"
#include "base/internal_api.h"
#include "track/dashboard_view.h"
#include "track/terminal_screen.h"

namespace hasten {

struct DashboardTerminal {
  Descriptor file;
  std::string reason;  // the reason if there is none
  // The process group that owns the terminal, if it is a launcher's and not this process's.
  pid_t group = 0;
};
// Returns the terminal of standard input and standard error, or the terminal of the launcher that
// started this process.
HASTEN_INTERNAL_API DashboardTerminal find_terminal();

// The keys that were pressed since the last take_keys().
struct DashboardKeys {
  bool stop = false, save = false, evaluate = false;
};

class HASTEN_INTERNAL_API Dashboard {
 public:
  Dashboard(DashboardTerminal terminal, std::function<OpenScreenFunction> open);
  Dashboard(const Dashboard&) = delete;
  Dashboard& operator=(const Dashboard&) = delete;
  ~Dashboard();

  bool is_open() const { return reason_.empty(); }
  // Returns the reason if the dashboard is not open.
  const std::string& reason() const { return reason_; }

  // Calls change(DashboardFigures&) while nothing is drawn.
  template <class Change>
  void update(const Change& change) {
    const std::lock_guard lock(mutex_);
    change(figures_);
  }
  DashboardKeys take_keys();

 private:
  void run(const std::function<OpenScreenFunction>& open);
  void draw(TerminalScreen& screen, bool whole);
  // Returns true if the screen must be drawn as a whole.
  bool read_keys(TerminalScreen& screen);
  void suspend(TerminalScreen& screen) const;

  DashboardTerminal terminal_;
  std::string reason_;
  DashboardFigures figures_;
  DashboardKeys keys_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_started_ = false, is_stopping_ = false;
  std::thread thread_;
};

}  // namespace hasten
