#include "hasten/launch/slurm_script.h"

#include <algorithm>
#include <filesystem>

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

std::string step_lines(const SlurmScript& script) {
  // Adds --no_config_file, because the options already contain the file that was read here, and a
  // default file on another machine must not change them. Adds the number of cores for srun,
  // because since Slurm 22.05 srun does not take it from the job.
  const std::string cores =
      script.cpus_per_task ? str(" --cpus-per-task=", *script.cpus_per_task) : "";
  std::string text = str("srun --nodes=", script.num_machines, " --ntasks=", script.num_machines,
                         " --ntasks-per-node=1", cores, " --cpu-bind=none \\\n",
                         "  --export=ALL --kill-on-bad-exit=1 \\\n",
                         "  bash -c 'exec \"$0\" launch --machine_rank \"$SLURM_NODEID\" "
                         "--no_config_file \"$@\"' ",
                         shell_word(script.hasten), " \\\n  --num_machines ", script.num_machines,
                         " --main_process_ip \"$first_host\" --main_process_port \"$port\"");
  for (const std::string& option : script.options) text += " " + shell_word(option);
  text += " -- \\\n ";
  for (const std::string& word : script.program) text += " " + shell_word(word);
  return text;
}

// Returns the exit code of a run that Slurm's signal has stopped, as a shell's expression. The
// option is [R|B:]SIGNAL[@SECONDS] with a name or a number.
std::string exit_code_of_signal(const std::string& option) {
  const std::string signal = split(option.substr(option.find(':') + 1), '@').front();
  const bool is_number = signal.find_first_not_of("0123456789") == signal.npos;
  return "$((128 + " + (is_number ? signal : "$(kill -l " + signal + ")") + "))";
}

// Returns the step and, if Slurm sends a signal before the time limit, what follows it. Without
// such a signal its exit code is the script's.
std::string step_and_requeue_lines(const SlurmScript& script) {
  if (script.signal.empty()) return step_lines(script) + "\n";
  return "# Slurm sends a signal before the time limit; launchers forward it to the ranks.\n"
         "code=0\n" +
         step_lines(script) +
         " || code=$?\n\n"
         "# A run that this signal has stopped is not complete, so Slurm starts the job again.\n"
         "if [ \"$code\" = \"" +
         exit_code_of_signal(script.signal) +
         "\" ]; then scontrol requeue \"$SLURM_JOB_ID\" || true; fi\n"
         "exit \"$code\"\n";
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
         step_and_requeue_lines(script);
}

}  // namespace hasten
