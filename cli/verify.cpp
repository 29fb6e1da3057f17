// `hasten verify`: repeats a part of a run and compares its hashes.
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file_calls.h"
#include "base/strict_json.h"
#include "base/unfinished_files.h"
#include "child.h"
#include "commands/diff_options.h"
#include "commands/existing_paths.h"
#include "core_commands.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "options/help.h"
#include "own_program.h"

namespace hasten::cli {
namespace {

namespace fs = std::filesystem;

constexpr auto kPoll = std::chrono::milliseconds(200);
constexpr auto kStopTimeout = std::chrono::minutes(10);

// The first step of a chain, and the step and the number of processes of its last whole line.
struct ChainEnds {
  std::int64_t first_step = -1, step = -1, num_processes = 1;
  bool lacks_beginning = false;  // the first line continues one that is not in the file
};

ChainEnds ends_of(const fs::path& file) {
  ChainEnds ends;
  std::ifstream in(file, std::ios::binary);
  for (std::string line; std::getline(in, line) && !in.eof();) {
    const auto json = parse_json_or_discard(line);
    if (!json.is_object()) continue;
    ends.step = json.value("step", ends.step);
    ends.num_processes = json.value("num_processes", ends.num_processes);
    if (ends.first_step >= 0) continue;
    ends.first_step = ends.step;
    const std::string before = json.value("previous", std::string());
    ends.lacks_beginning = before.find_first_not_of('0') != std::string::npos;
  }
  return ends;
}

// Throws if the chain has no line yet. Prints from where on it can be compared, if a resumed run
// has begun it again.
void check_chain(const fs::path& file, const ChainEnds& ends, std::int64_t from) {
  if (ends.step < 0) {
    throw DataError("checkpoint.no-chain",
                    {.what = file.string(),
                     .got = "a file without lines",
                     .expected = "the hashes of a step",
                     .hint = "the run writes the next line at a multiple of hash_chain_steps"});
  }
  if (!ends.lacks_beginning || from >= ends.first_step) return;
  std::printf(
      "%s begins with step %lld: a resumed run has begun it again, so steps before it "
      "cannot be compared\n",
      file.c_str(), static_cast<long long>(ends.first_step));
}

// Throws if the run does not exist, or lacks a file or a checkpoint that a repetition needs.
void check_run(const fs::path& run, std::int64_t from) {
  check_path_exists(run.string());
  for (const fs::path& file : {run / kHashChainFile, run / kHashChainConfigFile}) {
    if (path_exists(file)) continue;
    throw DataError("checkpoint.no-chain", {.what = file.string(),
                                            .got = "no such file",
                                            .expected = "the output_dir of a run with a hash chain",
                                            .hint = "train with --hash_chain_steps 100"});
  }
  const fs::path checkpoint = run / str(kCheckpointPrefix, from);
  if (from == 0) return;
  restore_replaced_folder(checkpoint);
  if (fs::is_directory(checkpoint)) return;
  throw ConfigError("checkpoint.no-step", {.what = str("--from ", from),
                                           .got = "no folder " + checkpoint.string(),
                                           .expected = "the step of a checkpoint, or 0"});
}

std::vector<std::string> training_command(const std::string& program, const fs::path& run,
                                          std::int64_t from, const fs::path& output,
                                          std::int64_t processes) {
  std::vector<std::string> command = {program};
  if (processes > 1) {
    for (const std::string& argument :
         {std::string("launch"), std::string("--num_processes"), str(processes), program})
      command.push_back(argument);
  }
  for (const std::string& argument :
       {std::string("train"), std::string("--config_file"), (run / kHashChainConfigFile).string(),
        std::string("--output_dir"), output.string(), std::string("--save_strategy"),
        std::string("no"), std::string("--enable_jit_checkpoint"), std::string("false"),
        std::string("--load_best_model_at_end"), std::string("false"), std::string("--report_to"),
        std::string("none"), std::string("--disable_tqdm"), std::string("true")})
    command.push_back(argument);
  if (from > 0) {
    command.push_back("--resume_from_checkpoint");
    command.push_back((run / str(kCheckpointPrefix, from)).string());
  }
  return command;
}

// Runs the training until its chain contains the step, and then stops it.
void train_until_step(const std::vector<std::string>& command, const fs::path& chain,
                      std::int64_t until) {
  Child child(command, {.drop_hasten_variables = true});
  std::string error;
  bool is_stopped = false;
  while (!child.is_at_end()) {
    if (const auto line = child.line(Clock::now() + kPoll)) {
      if (line->text.find(": error") != std::string::npos) error = line->text;
    }
    if (!is_stopped && path_exists(chain) && ends_of(chain).step >= until) {
      child.send(SIGTERM);
      is_stopped = true;
    }
  }
  const int code = child.wait(Clock::now() + kStopTimeout).value_or(1);
  if (ends_of(chain).step >= until) return;
  throw DataError(
      "checkpoint.repetition",
      {.what = str("the repeated run ended with exit code ", code),
       .got = error,
       .hint = "call hasten verify in the folder in which the run was started, with the "
               "same model and data"});
}

}  // namespace

int verify(int argc, char** argv) {
  const VerifyCommand command = parse_verify({argv + 2, argv + argc});
  if (command.help) {
    std::fputs(verify_help(config::terminal_width()).c_str(), stdout);
    return 0;
  }
  check_run(command.run, command.from);
  const std::string program = own_program();
  const fs::path chain = fs::path(command.run) / kHashChainFile;
  const ChainEnds ends = ends_of(chain);
  check_chain(chain, ends, command.from);
  const TemporaryDirectory folder;
  train_until_step(
      training_command(program, command.run, command.from, folder.path(), ends.num_processes),
      folder.path() / kHashChainFile, ends.step);
  Child comparison(
      {program, "diff", command.run, folder.path().string(), "--from", str(command.from + 1)}, {});
  while (!comparison.is_at_end()) {
    if (const auto line = comparison.line(Clock::now() + kPoll))
      std::printf("%s\n", line->text.c_str());
  }
  return comparison.wait(Clock::now() + kStopTimeout).value_or(1);
}

}  // namespace hasten::cli
