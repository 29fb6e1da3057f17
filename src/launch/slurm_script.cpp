#include "hasten/launch/slurm_script.h"

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "options/value.h"

namespace hasten {
namespace {

bool is_letter_or_digit(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9');
}

bool is_plain(char letter) {
  return is_letter_or_digit(letter) ||
         std::string_view("_-./:,+@%=").find(letter) != std::string_view::npos;
}

// Slurm parses the #SBATCH lines itself: neither quotes nor blanks are safe there.
std::string plain(const std::string& option, const std::string& value) {
  if (!std::all_of(value.begin(), value.end(), is_plain))
    throw ConfigError(
        "config.bad-value",
        {.what = option, .got = "'" + value + "'", .expected = "letters, digits and _-./:,+@%="});
  return value;
}

std::string job_name_of(const std::string& program) {
  std::string name = std::filesystem::path(program).filename().string();
  for (char& letter : name) {
    if (!is_letter_or_digit(letter) && letter != '.' && letter != '-') letter = '_';
  }
  return name.empty() ? "hasten" : name;
}

// The signals that launchers forward to their ranks.
constexpr std::pair<std::string_view, int> kForwarded[] = {
    {"HUP", SIGHUP}, {"INT", SIGINT}, {"TERM", SIGTERM}, {"USR1", SIGUSR1}, {"USR2", SIGUSR2}};

bool is_whole_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

// Returns the number of a signal that launchers forward. The text is a name, with or without SIG,
// or the number. Returns 0 for other texts.
int forwarded_signal(std::string_view text) {
  if (text.starts_with("SIG")) text.remove_prefix(3);
  for (const auto& [name, number] : kForwarded) {
    if (text == name || text == str(number)) return number;
  }
  return 0;
}

// Returns the exit code of a run that Slurm's signal has stopped. The option is
// [R:]SIGNAL[@SECONDS].
int exit_code_of_signal(const std::string& option) {
  std::string_view text = option;
  const bool to_script_only = text.starts_with("B:");
  if (text.starts_with("R:")) text.remove_prefix(2);
  const std::size_t at = text.find('@');
  const int signal = forwarded_signal(text.substr(0, at));
  const bool has_valid_time = at == text.npos || is_whole_number(text.substr(at + 1));
  if (signal != 0 && has_valid_time) return 128 + signal;
  throw ConfigError(
      "config.bad-value",
      {.what = "slurm_signal",
       .got = "'" + option + "'",
       .expected = "SIGNAL, SIGNAL@SECONDS or R:SIGNAL@SECONDS, and one of the signals that "
                   "launchers forward: HUP, INT, TERM, USR1, USR2",
       .hint = to_script_only
                   ? "leave out B:, because Slurm then signals only the script, not the launchers"
                   : ""});
}

std::string sbatch_lines(const SlurmScript& script) {
  std::string text;
  const auto line = [&](const auto&... parts) { text += str("#SBATCH --", parts..., "\n"); };
  const std::string name = plain("job_name", script.job_name);
  line("job-name=", name);
  line("nodes=", script.num_machines);
  line("ntasks-per-node=1");
  if (script.cpus_per_task) {
    line("cpus-per-task=", *script.cpus_per_task);
  } else {
    line("exclusive");
  }
  if (script.gpus_per_node) line("gres=gpu:", *script.gpus_per_node);
  if (!script.time.empty()) line("time=", plain("slurm_time", script.time));
  if (!script.partition.empty()) line("partition=", plain("slurm_partition", script.partition));
  if (!script.account.empty()) line("account=", plain("slurm_account", script.account));
  line("output=", name, "-%j.log");
  line("open-mode=append");  // a requeued job appends to the same file
  line("requeue");
  if (!script.signal.empty()) line("signal=", plain("slurm_signal", script.signal));
  return text;
}

// `run_launcher` are the commands of a shell that run one launcher. `words` go to that shell before
// the launcher's options.
std::string step_lines(const SlurmScript& script, const std::string& run_launcher,
                       const std::string& words = "") {
  // Adds --no_config_file, because the options already contain the file that was read here, and a
  // default file on another machine must not change them. Adds the number of cores for srun,
  // because since Slurm 22.05 srun does not take it from the job.
  const std::string cores =
      script.cpus_per_task ? str(" --cpus-per-task=", *script.cpus_per_task) : "";
  std::string text =
      str("srun --nodes=", script.num_machines, " --ntasks=", script.num_machines,
          " --ntasks-per-node=1", cores, " --cpu-bind=none \\\n",
          "  --export=ALL --kill-on-bad-exit=1 \\\n", "  bash -c '", run_launcher, "' ",
          shell_word(script.hasten), words, " \\\n  --num_machines ", script.num_machines,
          " --main_process_ip \"$first_host\" --main_process_port \"$port\"");
  for (const std::string& option : script.options) text += " " + shell_word(option);
  text += " -- \\\n ";
  for (const std::string& word : script.program) text += " " + shell_word(word);
  return text;
}

// Returns the step of a job that Slurm signals before its time limit, and the commands that decide
// whether Slurm starts the job again.
//
// srun ends all launchers when one fails, and its exit code is the largest of theirs. So the code
// of a launcher that the signal has stopped becomes 0: otherwise srun would send SIGTERM to ranks
// that still save, and the larger code 143 of their launcher would hide the stop. The launcher of
// machine 0 ends with the code of the job. It runs on the same machine as the script, and notes the
// stop in a file.
std::string requeued_step_lines(const SlurmScript& script) {
  const int code = exit_code_of_signal(script.signal);
  const std::string run_launcher = str(
      "trap : HUP INT TERM USR1 USR2; code=0\n",
      "  \"$0\" launch --machine_rank \"$SLURM_NODEID\" --no_config_file \"${@:2}\" || code=$?\n",
      "  [ \"$code\" = ", code, " ] || exit \"$code\"\n",
      "  [ \"$SLURM_NODEID\" != 0 ] || echo \"$code\" >\"$1\"");
  return str(
      "# Slurm sends a signal before the time limit; launchers forward it to the ranks. srun must\n"
      "# not end ranks that still save, so a launcher that the signal has stopped returns 0, and\n"
      "# machine 0, which is this one, notes the stop in a file.\n"
      "stop=$(mktemp)\n"
      "code=0\n",
      step_lines(script, run_launcher, " \"$stop\""),
      " || code=$?\n"
      "stop_code=$(cat \"$stop\")\n"
      "rm \"$stop\"\n\n"
      "# A run that this signal has stopped is not complete, so Slurm starts the job again.\n"
      "if [ \"$code\" = 0 ] && [ -n \"$stop_code\" ]; then\n"
      "  code=$stop_code\n"
      "  scontrol requeue \"$SLURM_JOB_ID\" || true\n"
      "fi\n"
      "exit \"$code\"\n");
}

// Returns the step. Its exit code is the script's.
std::string plain_step_lines(const SlurmScript& script) {
  return step_lines(script,
                    "exec \"$0\" launch --machine_rank \"$SLURM_NODEID\" --no_config_file \"$@\"") +
         "\n";
}

// True for an option that the script sets itself, or that only affects how the script is written.
bool is_set_by_script(const std::string& name) {
  static const std::vector<std::string> names = {"config_file",     "no_config_file",   "dry_run",
                                                 "num_machines",    "machine_rank",     "nnodes",
                                                 "main_process_ip", "main_process_port"};
  return starts_with(name, "slurm") || std::find(names.begin(), names.end(), name) != names.end();
}

// True if the launchers need no flag for the value. A flag that gives the default overrides a
// HASTEN_ variable, which the launchers inherit.
bool is_implied(const config::ResolvedValue& value) {
  return value.value == value.default_value && value.origin.source != config::Origin::Source::flag;
}

}  // namespace

std::string shell_word(std::string_view text) {
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
  std::string word = "'";
  for (const char letter : text) {
    if (letter == '\'') {
      word += "'\\''";
    } else {
      word += letter;
    }
  }
  return word + "'";
}

SlurmScript slurm_script(const LaunchConfiguration& run, const std::string& hasten) {
  const LaunchOptions& options = run.options;
  SlurmScript script{.hasten = hasten,
                     .job_name = job_name_of(run.program.front()),
                     .num_machines = run.machines.max_count,
                     .time = options.slurm_time,
                     .partition = options.slurm_partition,
                     .account = options.slurm_account,
                     .signal = options.slurm_signal,
                     .gpus_per_node = options.slurm_gpus_per_node,
                     .cpus_per_task = options.slurm_cpus_per_task,
                     .program = run.program};
  for (const config::ResolvedValue& value : run.values) {
    if (is_set_by_script(value.name) || is_implied(value)) continue;
    script.options.push_back("--" + value.name);
    script.options.push_back(config::to_argument(value.value));
  }
  return script;
}

std::string to_text(const SlurmScript& script) {
  return "#!/bin/bash\n"
         "# Written by hasten launch --slurm. One launcher runs on each machine.\n" +
         sbatch_lines(script) +
         "set -eu\n\n"
         "# Only processes of this job know this token, with which they authenticate each other.\n"
         "HASTEN_JOB_TOKEN=$(od -An -v -tx1 -N32 /dev/urandom | tr -d ' \\n')\n"
         "export HASTEN_JOB_TOKEN\n"
         "# All launchers connect to the first machine, at a port computed from the job's number.\n"
         "read -r first_host < <(scontrol show hostnames \"$SLURM_JOB_NODELIST\")\n"
         "port=$((20000 + SLURM_JOB_ID % 9973))\n\n" +
         (script.signal.empty() ? plain_step_lines(script) : requeued_step_lines(script));
}

}  // namespace hasten
