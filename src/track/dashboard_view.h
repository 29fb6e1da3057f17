// File: track/dashboard_view.h (internal)
// The contents of a training run's dashboard, and their layout as lines of text.
//
//   DashboardFigures figures{.step = 3, .max_steps = 100};
//   for (const ScreenLine& line : dashboard_lines(figures, {80, 24}, true, {})) draw(line);
//
// Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/internal_api.h"
#include "track/curve.h"
#include "track/terminal_screen.h"

namespace hasten {

struct DashboardRank {
  std::string host;
  double cores = 0;                // in use on average since the last report
  std::int64_t resident = 0;       // bytes in RAM
  std::int64_t device_memory = 0;  // bytes in use on its GPU, or 0 if it has none
};

struct DashboardMemory {
  std::string name;
  std::int64_t bytes = 0;
};

struct DashboardFigures {
  std::string title;
  std::string activity;  // "training", "evaluating", "saving"
  std::string notice;    // the answer to the last key
  std::int64_t step = 0, max_steps = 0;
  double epoch = 0;
  std::int64_t num_train_epochs = 0;
  std::int64_t evaluated = 0, to_evaluate = 0;  // batches of the evaluation that runs
  double seconds = 0;                           // since this run began
  std::int64_t steps_made = 0;                  // the steps of this run
  double rows_per_step = 0;
  // The FLOP per second of the last steps, and the most that the machine can do. 0 means unknown.
  double flops_per_second = 0, roof = 0;
  Curve step_loss;                      // the loss of each step
  std::map<std::string, Curve> logged;  // by name
  std::vector<std::string> metrics;     // the names in the order in which they were logged
  std::size_t chosen = 0;               // the metric that is drawn, an index of `metrics`
  bool memory_at_peak = false;          // `memory` is the peak of the anatomy, not the current use
  std::vector<DashboardMemory> memory;
  std::vector<DashboardRank> ranks;
};

// `messages` are the last lines that the process has printed. The result has at most size.rows
// lines. Parts that do not fit are left out, curves and messages first.
HASTEN_INTERNAL_API std::vector<ScreenLine> dashboard_lines(
    const DashboardFigures& figures, const ScreenSize& size, bool unicode,
    const std::vector<std::string>& messages);

}  // namespace hasten
