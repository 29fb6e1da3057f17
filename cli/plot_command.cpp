// `hasten plot`: draws the curves of runs as an HTML page.
#include "track/plot.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "commands/plot_options.h"
#include "core_commands.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "options/help.h"

namespace hasten::cli {
namespace {

// Removes the curves whose names are not in the list.
void keep_curves(std::vector<LoggedRun>& runs, const std::vector<std::string>& names) {
  if (names.empty()) return;
  std::set<std::string> known;
  for (LoggedRun& run : runs) {
    for (const auto& [name, curve] : run.curves) known.insert(name);
    std::erase_if(run.curves, [&](const auto& item) {
      return std::find(names.begin(), names.end(), item.first) == names.end();
    });
  }
  for (const std::string& name : names) {
    if (known.count(name) > 0) continue;
    throw DataError("track.no-values", {.what = "--curves",
                                        .got = "'" + name + "', which no run has logged",
                                        .expected = join({known.begin(), known.end()}, ", ")});
  }
}

}  // namespace

int plot(int argc, char** argv) {
  const PlotCommand command = parse_plot({argv + 2, argv + argc});
  if (command.help) {
    std::fputs(plot_help(config::terminal_width()).c_str(), stdout);
    return 0;
  }
  std::vector<LoggedRun> runs = read_logged_runs({command.runs.begin(), command.runs.end()});
  keep_curves(runs, command.curves);
  write_file_atomically(command.output, plot_page(runs, {.smoothing = command.smoothing,
                                                         .log_scale = command.log_scale}));
  std::printf("%s\n", str("Written to ", command.output, ": ", runs.size(),
                          runs.size() == 1 ? " run" : " runs")
                          .c_str());
  return 0;
}

}  // namespace hasten::cli
