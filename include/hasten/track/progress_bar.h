// File: hasten/track/progress_bar.h
// A line that shows the progress of a loop: share, rate, remaining time, and a text of the program.
//
//   ProgressBar bar(num_training_steps, {.description = "Training"});
//   for (std::int64_t step = 0; step < num_training_steps; ++step) {
//     bar.set_postfix("loss 0.412");
//     bar.update();
//   }
//   // Training 45% |##########            | 563/1250 [0:41<0:50, 13.7 it/s, loss 0.412]
//
// On a terminal the line is redrawn in place, at most ten times a second. Elsewhere (a file, a
// pipe) one line is printed for each tenth of the total, so that a log stays short. Output goes to
// standard error by default. Thread rule: one thread at a time. Nothing here throws.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "hasten/base/detail/export.h"

namespace hasten {

struct ProgressBarOptions {
  std::string description = "";
  std::string unit = "it";
  bool enabled = true;
  // Keeps the finished line. If false, erases it, and prints nothing without a terminal.
  bool leave = true;
  std::FILE* out = stderr;
};

class HASTEN_API ProgressBar {
 public:
  explicit ProgressBar(std::int64_t total, ProgressBarOptions options = {});
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();

  // Counts n more units as done.
  void update(std::int64_t n = 1);
  // Begins with n units of an earlier run: they count for the share, not for the rate.
  void start_at(std::int64_t n);
  // Sets the text after the rate; the next drawing shows it.
  void set_postfix(std::string text);
  // Sets that text and shows it at once, before a part that takes long. Without a terminal it
  // prints a line.
  void show(std::string postfix);
  // Prints a line of text above the bar.
  void write(const std::string& line);
  // Ends the bar; the destructor does so too.
  void close();

 private:
  std::string line(int columns) const;
  void draw(bool force);
  void clear();

  using Clock = std::chrono::steady_clock;
  ProgressBarOptions options_;
  std::int64_t total_, done_ = 0, initial_ = 0;
  std::string postfix_;
  Clock::time_point start_ = Clock::now(), drawn_{};
  bool terminal_ = false, closed_ = false, on_screen_ = false;
  int tenth_ = -1;
};

}  // namespace hasten
