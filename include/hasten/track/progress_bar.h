// File: hasten/track/progress_bar.h
// A line that shows how far a loop is: share, rate, time left, and what you want to see beside it.
//
//   ProgressBar bar(num_training_steps);
//   for (...) { ...; bar.update(1); }
//   bar.set_postfix("loss 0.412");
//
//   Training  45% |##########            | 563/1250 [0:41<0:50, 13.7 it/s, loss 0.412]
//
// On a terminal the line is drawn over itself, at most ten times a second; elsewhere (a file, a
// pipe) one line is printed for each tenth of the way, so that a log stays short. Output goes to
// standard error unless told otherwise. Thread rule: one thread at a time. Nothing here throws.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace hasten {

struct ProgressBarOptions {
  std::string description = "";
  std::string unit = "it";
  bool enabled = true;
  bool leave = true;  // keep the finished line
  std::FILE* out = stderr;
};

class ProgressBar {
 public:
  explicit ProgressBar(std::int64_t total, ProgressBarOptions options = {});
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();

  void update(std::int64_t n = 1);
  // Starts from n done before this run: they count for the share, not for the rate.
  void start_at(std::int64_t n);
  void set_postfix(std::string text);
  // The same, seen at once: what follows takes long. Elsewhere than on a terminal it is a line.
  void show(std::string postfix);
  // A line of text above the bar.
  void write(const std::string& line);
  void close();

 private:
  std::string line(int columns) const;
  void draw(bool force);
  void clear();

  using Clock = std::chrono::steady_clock;
  ProgressBarOptions options_;
  std::int64_t total_, done_ = 0, before_ = 0;
  std::string postfix_;
  Clock::time_point start_ = Clock::now(), drawn_{};
  bool terminal_ = false, closed_ = false, on_screen_ = false;
  int tenth_ = -1;
};

}  // namespace hasten
