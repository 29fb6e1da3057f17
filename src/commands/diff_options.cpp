#include "commands/diff_options.h"

#include "commands/operands.h"
#include "options/sources.h"

namespace hasten {
namespace {

// The option of both commands.
struct DiffOptions {
  std::int64_t from = 0;
};

void describe(config::OptionTable& table, DiffOptions& options) {
  config::Describer d(table, options);
  d("from", &DiffOptions::from, "Begin after this step.").at_least(0);
}

// Returns the operands, and sets `from`.
std::vector<std::string> read_runs(const std::vector<std::string>& words, std::int64_t& from) {
  DiffOptions options;
  config::OptionTable table;
  describe(table, options);
  std::vector<std::string> runs = read_operands(table, words);
  from = options.from;
  return runs;
}

}  // namespace

DiffCommand parse_diff(const std::vector<std::string>& words) {
  DiffCommand command;
  command.help = config::asks_for_help(words);
  if (command.help) return command;
  const std::vector<std::string> runs = read_runs(words, command.from);
  if (runs.size() != 2)
    config::throw_missing("two runs have to be named", "hasten diff out/a out/b");
  command.a = runs[0];
  command.b = runs[1];
  return command;
}

VerifyCommand parse_verify(const std::vector<std::string>& words) {
  VerifyCommand command;
  command.help = config::asks_for_help(words);
  if (command.help) return command;
  const std::vector<std::string> runs = read_runs(words, command.from);
  if (runs.size() != 1)
    config::throw_missing("one run has to be named", "hasten verify out --from 500");
  command.run = runs[0];
  return command;
}

std::string diff_help() {
  return "usage: hasten diff RUN RUN [--NAME VALUE ...]\n\n"
         "Finds the first step and tensor in which two runs differ. Compares their hash chains\n"
         "(hash_chain.jsonl, which --hash_chain_steps writes) and the checkpoints of equal steps.\n"
         "A RUN is the output_dir of a Trainer, or the project_dir of an Accelerator. The exit "
         "code\n"
         "is 0 if they are equal, and 1 if they differ.\n\n"
         "  --from STEP          Compare from this step on. [0]\n";
}

std::string verify_help() {
  return "usage: hasten verify RUN [--NAME VALUE ...]\n\n"
         "Repeats a part of a run of hasten train and compares the hashes of every k steps, so "
         "that\n"
         "anybody can check that RUN, its output_dir, holds what its arguments and data give. RUN\n"
         "was made with --hash_chain_steps. Call it in the folder in which the run was started. "
         "The\n"
         "exit code is 0 if all hashes are equal, and 1 if one differs.\n\n"
         "  --from STEP          Continue from checkpoint-STEP of the run; 0: from the beginning.\n"
         "                       [0]\n";
}

}  // namespace hasten
