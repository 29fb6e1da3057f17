#include "commands/diff_options.h"

#include "commands/command_operands.h"
#include "options/help.h"
#include "options/sources.h"

namespace hasten {
namespace {

void describe(config::OptionTable& table, DiffCommand& command) {
  config::Describer d(table, command);
  d("from", &DiffCommand::from, "Compare from this step on.").at_least(0);
}

void describe(config::OptionTable& table, VerifyCommand& command) {
  config::Describer d(table, command);
  d("from", &VerifyCommand::from,
    "Continue from the checkpoint of this step of the run. 0 means the beginning of the run.")
      .at_least(0);
}

}  // namespace

DiffCommand parse_diff(const std::vector<std::string>& arguments) {
  DiffCommand command;
  command.help = config::asks_for_help(arguments);
  if (command.help) return command;
  config::OptionTable table;
  describe(table, command);
  const std::vector<std::string> runs = read_operands(table, arguments);
  if (runs.size() != 2)
    config::throw_missing("two runs have to be named", "hasten diff out/a out/b");
  command.a = runs[0];
  command.b = runs[1];
  return command;
}

VerifyCommand parse_verify(const std::vector<std::string>& arguments) {
  VerifyCommand command;
  command.help = config::asks_for_help(arguments);
  if (command.help) return command;
  config::OptionTable table;
  describe(table, command);
  const std::vector<std::string> runs = read_operands(table, arguments);
  if (runs.size() != 1)
    config::throw_missing("one run has to be named", "hasten verify out --from 500");
  command.run = runs[0];
  return command;
}

std::string diff_help(int width) {
  DiffCommand command;
  config::OptionTable table;
  describe(table, command);
  return "usage: hasten diff RUN RUN [--NAME VALUE ...]\n\n"
         "Finds the first step and tensor in which two runs differ. Compares their hash chains\n"
         "(hash_chain.jsonl, which --hash_chain_steps writes) and the checkpoints of equal steps.\n"
         "A RUN is the output_dir of a Trainer, or the project_dir of an Accelerator. The exit\n"
         "code is 0 if they are equal, and 1 if they differ.\n\n" +
         config::help_text(table, width);
}

std::string verify_help(int width) {
  VerifyCommand command;
  config::OptionTable table;
  describe(table, command);
  return "usage: hasten verify RUN [--NAME VALUE ...]\n\n"
         "Repeats a part of a run of hasten train and compares the hashes of every k steps. This\n"
         "checks that RUN, the output_dir of the run, is the result of its arguments and data.\n"
         "The run must have used --hash_chain_steps. Call it in the folder in which the run was\n"
         "started. The exit code is 0 if all hashes are equal, and 1 if one differs.\n\n" +
         config::help_text(table, width);
}

}  // namespace hasten
