// File: cli/main.cpp
// The command `hasten`: answers help, version and usage errors itself, in milliseconds. It runs
// hasten-torch, which links LibTorch, for everything that needs tensors. Exit codes:
// hasten/base/error.h.
#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/did_you_mean.h"
#include "base/standard_streams.h"
#include "commands/diff_options.h"
#include "commands/estimate_options.h"
#include "commands/generate_options.h"
#include "commands/inspect_options.h"
#include "commands/plan_options.h"
#include "commands/weights_options.h"
#include "core_commands.h"
#include "exec_torch.h"
#include "hasten/base/text.h"
#include "hasten/launch/worker.h"
#include "hasten/machine/gpus.h"
#include "hasten/options/train_options.h"
#include "options/help.h"
#include "program/exception_report.h"
#include "run_with_anatomy.h"
#include "standard_output.h"

namespace {

using namespace hasten;

constexpr int kUsageError = 2;

struct Command {
  const char* name;
  const char* help;
  int (*run)(int argc, char** argv);
};

void print(const std::string& text, std::FILE* to = stdout) { std::fputs(text.c_str(), to); }

// Prints the notices, on rank 0 only.
void print_notices(const std::string& command, const std::vector<std::string>& notices) {
  if (this_worker().rank != 0) return;
  for (const std::string& notice : notices)
    print("hasten " + command + ": note: " + notice + "\n", stderr);
}

int train(int argc, char** argv) {
  const auto run = parse_train({argv + 2, argv + argc}, config::process_environment());
  print_notices("train", run.notices);
  switch (run.action) {
    case TrainAction::help:
      print(train_help(config::terminal_width()));
      return 0;
    case TrainAction::help_markdown:
      print(train_reference());
      return 0;
    case TrainAction::print_config:
      print(resolved_text(run, config::ValueFilter::all));
      return 0;
    case TrainAction::run:
      break;
  }
  check_files(run.options, run.arguments.resume_from_checkpoint);
  cli::exec_torch_program(argv);
}

int run_observed(int argc, char** argv, bool dry) {
  const ObserveOptions options = parse_observe({argv + 2, argv + argc}, argv[1]);
  if (options.help) {
    print(observe_help(argv[1], config::terminal_width()));
    return 0;
  }
  cli::run_with_anatomy(options, dry);
}

int anatomy(int argc, char** argv) { return run_observed(argc, argv, /*dry=*/false); }

int estimate(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 2, argv + argc);
  if (std::find(arguments.begin(), arguments.end(), "--") != arguments.end())
    return run_observed(argc, argv, /*dry=*/true);
  const auto run = parse_estimate({argv + 2, argv + argc}, config::process_environment());
  if (run.help) {
    print(estimate_help(config::terminal_width()));
    return 0;
  }
  if (run.devices) {
    print(gpus_text());
    return 0;
  }
  print_notices("estimate", run.train.notices);
  check_files(run.train.options);
  cli::prepare_prediction(run.device);
  cli::exec_torch_program(argv);
}

int plan(int argc, char** argv) {
  const auto run = parse_plan({argv + 2, argv + argc}, config::process_environment());
  if (run.step.help) {
    print(plan_help(config::terminal_width()));
    return 0;
  }
  if (run.step.devices) {
    print(gpus_text());
    return 0;
  }
  if (!run.techniques && run.program.empty()) {
    print_notices("plan", run.step.train.notices);
    check_files(run.step.train.options);
  }
  cli::exec_torch_program(argv);
}

int generate(int argc, char** argv) {
  if (parse_generate({argv + 2, argv + argc}).help) {
    print(generate_help(config::terminal_width()));
    return 0;
  }
  cli::exec_torch_program(argv);
}

int inspect(int argc, char** argv) {
  if (parse_inspect({argv + 2, argv + argc}).help) {
    print(inspect_help(config::terminal_width()));
    return 0;
  }
  cli::exec_torch_program(argv);
}

int convert(int argc, char** argv) {
  if (parse_convert({argv + 2, argv + argc}).help) {
    print(convert_help(config::terminal_width()));
    return 0;
  }
  cli::exec_torch_program(argv);
}

int diff(int argc, char** argv) {
  if (parse_diff({argv + 2, argv + argc}).help) {
    print(diff_help(config::terminal_width()));
    return 0;
  }
  cli::exec_torch_program(argv);
}

int merge_weights(int argc, char** argv) {
  if (parse_merge_weights({argv + 2, argv + argc}).help) {
    print(merge_weights_help(config::terminal_width()));
    return 0;
  }
  cli::exec_torch_program(argv);
}

constexpr Command kCommands[] = {
    {"anatomy", "show where a program's steps spend memory and time", anatomy},
    {"config", "write or update the configuration file of hasten launch", cli::configure},
    {"convert", "convert weights that PyTorch has pickled to safetensors", convert},
    {"diff", "find the first step and tensor in which two runs differ", diff},
    {"env", "print facts about this machine for a problem report", cli::environment},
    {"estimate", "predict the memory and time of a training step", estimate},
    {"generate", "continue texts with a language model", generate},
    {"inspect", "show what a model that Python exported (.pt2) contains", inspect},
    {"launch", "start a program in several processes, each with a rank", cli::launch},
    {"merge-weights", "join weights that several safetensors files hold", merge_weights},
    {"plan", "choose techniques for a limit of memory", plan},
    {"plot", "draw the curves that runs have logged as an HTML page", cli::plot},
    {"search", "search hyper-parameters with runs of hasten train", cli::search},
    {"test", "check that this machine is ready for several processes", cli::test},
    {"tpu-config", "run commands on all machines of a TPU pod", cli::tpu_config},
    {"train", "fine-tune a model, evaluate it and save it", train},
    {"verify", "repeat a part of a run and compare its hashes", cli::verify},
};

std::string usage() {
  std::string out =
      "usage: hasten COMMAND [--NAME VALUE ...]\n\n"
      "Trains models on LibTorch, and measures or predicts the memory and time of training.\n\n";
  for (const Command& command : kCommands)
    out += "  " + std::string(command.name).append(15 - std::string(command.name).size(), ' ') +
           command.help + "\n";
  return out +
         "\n  hasten COMMAND --help   the options of a command\n"
         "  hasten --version        the version\n";
}

int unknown_command(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  print("hasten: error: unknown command '" + name + "'. Hint: " +
            did_you_mean(nearest(name, names), "the commands are " + join(names, ", ")) + "\n",
        stderr);
  return kUsageError;
}

int run_command(const Command& command, int argc, char** argv) {
  try {
    return command.run(argc, argv);
  } catch (...) {
    const ExceptionReport report = describe_exception();
    print("hasten " + std::string(command.name) + ": " + report.line, stderr);
    return report.exit_code;
  }
}

// True if the command may run without standard output, as a daemon does: its result is elsewhere,
// or another program of the user gets the same standard output.
bool may_lack_output(int argc, char** argv) {
  const std::string argument = argc > 1 ? argv[1] : "";
  return argument == "train" || argument == "launch" || argument == "anatomy" ||
         std::find(argv, argv + argc, std::string_view("--")) != argv + argc;
}

int run_program(int argc, char** argv) {
  const std::string argument = argc > 1 ? argv[1] : "";
  if (argument.empty()) {
    print(usage(), stderr);
    return kUsageError;
  }
  if (argument == "help" && argc > 2) {  // `hasten help train` is `hasten train --help`
    char help[] = "--help";
    char* swapped[] = {argv[0], argv[2], help, nullptr};
    return run_program(3, swapped);
  }
  if (argument == "--help" || argument == "-h" || argument == "help") {
    print(usage());
    return 0;
  }
  if (argument == "--version") {
    print("hasten " HASTEN_VERSION "\n");
    return 0;
  }
  for (const Command& command : kCommands) {
    if (argument == command.name) return run_command(command, argc, argv);
  }
  return unknown_command(argument);
}

}  // namespace

int main(int argc, char** argv) {
  if (!may_lack_output(argc, argv)) cli::keep_closed_output_unwritable();
  open_closed_streams();  // also for hasten-torch, which replaces this program
  const bool is_command = argc > 1 && argv[1][0] != '-';
  const std::string name = is_command ? "hasten " + std::string(argv[1]) : "hasten";
  return cli::check_standard_output(name, run_program(argc, argv));
}
