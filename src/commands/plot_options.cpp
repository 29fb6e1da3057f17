#include "commands/plot_options.h"

#include "commands/command_operands.h"
#include "options/help.h"
#include "options/sources.h"

namespace hasten {
namespace {

void describe(config::OptionTable& table, PlotCommand& command) {
  config::Describer d(table, command);
  d("output", &PlotCommand::output, "Write the page to this file.");
  d("curves", &PlotCommand::curves, "Draw only the curves of these names, such as train/loss.");
  d("smoothing", &PlotCommand::smoothing,
    "Smooth the curves with this weight of the earlier values, at least 0 and below 1. The page "
    "can change it.")
      .at_least(0)
      .below(1);
  d("log_scale", &PlotCommand::log_scale, "Begin with logarithmic scales. The page can change it.");
}

}  // namespace

PlotCommand parse_plot(const std::vector<std::string>& arguments) {
  PlotCommand command;
  command.help = config::asks_for_help(arguments);
  if (command.help) return command;
  config::OptionTable table;
  describe(table, command);
  command.runs = read_operands(table, arguments);
  if (command.runs.empty())
    config::throw_missing("no run is named", "hasten plot RUN..., such as hasten plot out");
  return command;
}

std::string plot_help(int width) {
  PlotCommand command;
  config::OptionTable table;
  describe(table, command);
  return "usage: hasten plot RUN... [--NAME VALUE ...]\n\n"
         "Draws the curves of one or several runs as one HTML page, which loads nothing else. A\n"
         "RUN is a file (an event file of TensorBoard, metrics.jsonl, metrics.csv or\n"
         "trainer_state.json), or a folder: each folder in it with such files is a run, or it is\n"
         "the output_dir of one. Name the RUNs before --curves, which takes several names, or\n"
         "after --.\n\n" +
         config::help_text(table, width);
}

}  // namespace hasten
