// File: commands/plot_options.h (internal)
// The options of `hasten plot`.
//
//   const PlotCommand run = parse_plot({argv + 2, argv + argc});
//   run.runs;       // the arguments that are no options
//
// Needs no torch. Throws ConfigError "config.*". Thread rule: values and a pure function.
#pragma once

#include <string>
#include <vector>

#include "base/internal_api.h"

namespace hasten {

struct PlotCommand {
  bool help = false;
  std::vector<std::string> runs;  // Folders and files.
  std::string output = "plot.html";
  std::vector<std::string> curves;  // The names to draw; empty for all.
  double smoothing = 0;
  bool log_scale = false;
};

// Parses the arguments after `plot`.
HASTEN_INTERNAL_API PlotCommand parse_plot(const std::vector<std::string>& arguments);
HASTEN_INTERNAL_API std::string plot_help(int width);

}  // namespace hasten
