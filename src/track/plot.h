// File: track/plot.h (internal)
// Draws the curves of runs as one HTML page that loads nothing else: a chart for each name, with a
// legend, a logarithmic scale and smoothing.
//
//   write_file_atomically("plot.html", plot_page(read_logged_runs({"out"}), {.smoothing = 0.6}));
//
// Thread rule: a pure function.
#pragma once

#include <string>
#include <vector>

#include "base/internal_api.h"
#include "track/logged_runs.h"

namespace hasten {

struct PlotOptions {
  double smoothing = 0;    // The weight of the earlier values, in [0, 1).
  bool log_scale = false;  // The page begins with logarithmic scales.
};

HASTEN_INTERNAL_API std::string plot_page(const std::vector<LoggedRun>& runs,
                                          const PlotOptions& options);

}  // namespace hasten
