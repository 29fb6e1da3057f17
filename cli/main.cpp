// File: cli/main.cpp
// The command `hasten`: answers help, version and usage errors itself, in milliseconds, and runs
// hasten-torch, which links LibTorch, for what needs tensors. Exit codes: hasten/base/error.h.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "hand_over.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/config/estimate_options.h"
#include "hasten/config/gpus.h"
#include "hasten/config/tpus.h"
#include "hasten/config/train_options.h"
#include "hasten/launch/worker.h"
#include "listen.h"
#include "processes.h"

namespace {

using namespace hasten;

constexpr int usage_error = 2;

struct Command {
  const char* name;
  const char* help;
  int (*run)(int argc, char** argv);
};

void print(const std::string& text, std::FILE* to = stdout) { std::fputs(text.c_str(), to); }

// Prints the notices, on rank 0 only.
void tell_notices(const std::string& command, const std::vector<std::string>& notices) {
  if (worker_of(config::whole_environment()).rank != 0) return;
  for (const std::string& notice : notices)
    print("hasten " + command + ": note: " + notice + "\n", stderr);
}

int train(int argc, char** argv) {
  const auto run = parse_train(argc - 2, argv + 2, config::process_environment());
  tell_notices("train", run.notices);
  switch (run.answer) {
    case TrainAnswer::help:
      print(train_help(config::terminal_width()));
      return 0;
    case TrainAnswer::help_markdown:
      print(train_reference());
      return 0;
    case TrainAnswer::print_config:
      print(resolved_text(run, config::Show::all));
      return 0;
    case TrainAnswer::run:
      break;
  }
  check_files(run.options);
  cli::hand_over(argv);
}

int listen(int argc, char** argv, bool dry) {
  const ListenOptions options = parse_listen(argc - 2, argv + 2, argv[1]);
  if (options.help) {
    print(anatomy_help());
    return 0;
  }
  cli::listen(options, dry);
}

int anatomy(int argc, char** argv) { return listen(argc, argv, /*dry=*/false); }

int estimate(int argc, char** argv) {
  const std::vector<std::string> words(argv + 2, argv + argc);
  if (std::find(words.begin(), words.end(), "--") != words.end())
    return listen(argc, argv, /*dry=*/true);
  const auto run = parse_estimate(argc - 2, argv + 2, config::process_environment());
  if (run.help) {
    print(estimate_help());
    return 0;
  }
  if (run.devices) {
    print(gpus_text());
    return 0;
  }
  tell_notices("estimate", run.train.notices);
  check_files(run.train.options);
  if (starts_with(run.device, kTpuDevice)) cli::choose_tpu_compiler();
  cli::hand_over(argv);
}

constexpr Command commands[] = {
    {"anatomy", "where memory and operations of a program's steps go", anatomy},
    {"config", "the file that launch reads: asked for, made, or brought up to date",
     cli::configure},
    {"env", "what a report of a problem should tell of this machine", cli::environment},
    {"estimate", "what a training step takes, before it is made", estimate},
    {"launch", "a program several times, each with a rank", cli::launch},
    {"test", "whether this machine is ready for several processes", cli::test},
    {"tpu-config", "commands on all machines of a TPU pod", cli::tpu_config},
    {"train", "fine-tune a model, evaluate it and save it", train},
};

std::string usage() {
  std::string out =
      "usage: hasten COMMAND [--NAME VALUE ...]\n\n"
      "Training on LibTorch: what a run does, what it costs, and why.\n\n";
  for (const Command& command : commands)
    out += "  " + std::string(command.name).append(12 - std::string(command.name).size(), ' ') +
           command.help + "\n";
  return out +
         "\n  hasten COMMAND --help   the options of a command\n"
         "  hasten --version        the version\n";
}

int unknown_command(const std::string& word) {
  std::vector<std::string> names;
  for (const Command& command : commands) names.emplace_back(command.name);
  const auto near = nearest(word, names);
  print("hasten: error: unknown command '" + word + "'. Hint: " +
            (near ? "did you mean " + *near + "?" : "the commands are " + join(names, ", ")) + "\n",
        stderr);
  return usage_error;
}

int run_command(const Command& command, int argc, char** argv) {
  const std::string prefix = "hasten " + std::string(command.name) + ": error";
  try {
    return command.run(argc, argv);
  } catch (const Error& error) {
    print(prefix + "[" + error.code() + "]: " + error.what() + "\n", stderr);
    return error.exit_code();
  } catch (const std::exception& error) {
    print(prefix + ": " + error.what() + "\n", stderr);
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (word.empty()) {
    print(usage(), stderr);
    return usage_error;
  }
  if (word == "--help" || word == "-h" || word == "help") {
    print(usage());
    return 0;
  }
  if (word == "--version") {
    print("hasten " HASTEN_VERSION "\n");
    return 0;
  }
  for (const Command& command : commands) {
    if (word == command.name) return run_command(command, argc, argv);
  }
  return unknown_command(word);
}
