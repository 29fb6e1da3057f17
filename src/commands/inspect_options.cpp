#include "commands/inspect_options.h"

#include "commands/command_operands.h"
#include "options/help.h"
#include "options/sources.h"

namespace hasten {
namespace {

void describe(config::OptionTable& table, InspectCommand& command) {
  config::Describer d(table, command);
  d("json", &InspectCommand::json, "Print JSON.");
  d("namespaces", &InspectCommand::namespaces,
    "Accept operators of these namespaces, which a library of your program registers.");
  d("library", &InspectCommand::library,
    "Load these libraries and accept the operators that they register. Loading a library runs its "
    "code.");
}

}  // namespace

InspectCommand parse_inspect(const std::vector<std::string>& arguments) {
  InspectCommand command;
  command.help = config::asks_for_help(arguments);
  if (command.help) return command;
  config::OptionTable table;
  describe(table, command);
  const std::vector<std::string> files = read_operands(table, arguments);
  if (files.size() != 1)
    config::throw_missing("one file has to be named", "hasten inspect model.pt2");
  command.file = files.front();
  return command;
}

std::string inspect_help(int width) {
  InspectCommand command;
  config::OptionTable table;
  describe(table, command);
  return "usage: hasten inspect FILE.pt2 [--NAME VALUE ...]\n\n"
         "Shows what a file of torch.export contains: parameters and buffers, and of each program\n"
         "the inputs, outputs, dynamic sizes, guards and operators. The last line says whether\n"
         "hasten loads it, or why not. Runs nothing of the file.\n\n" +
         config::help_text(table, width);
}

}  // namespace hasten
