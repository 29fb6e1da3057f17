// What each rank is told: torchrun's variables, Accelerate's settings, and our job's name.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/launch/launcher.h"
#include "launch/cores.h"
#include "launch/job.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

// The driver's own list; CUDA is not asked.
std::int64_t gpus_here() {
  std::error_code error;
  const fs::path folder = "/proc/driver/nvidia/gpus";
  return std::distance(fs::directory_iterator(folder, error), fs::directory_iterator());
}

bool can_run(const fs::path& file) {
  return fs::is_regular_file(file) && access(file.c_str(), X_OK) == 0;
}

// As execvp looks for it, but before anything is started.
std::string found_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (can_run(name)) return name;
    throw IoError("launch.program",
                  {.what = "program " + name,
                   .got = fs::exists(name) ? "not a program that may be run" : "no such file",
                   .hint = fs::exists(name) ? "chmod +x" : ""});
  }
  const char* const path = std::getenv("PATH");
  for (const std::string& folder : split(path ? path : "", ':')) {
    if (!folder.empty() && can_run(fs::path(folder) / name))
      return (fs::path(folder) / name).string();
  }
  throw IoError("launch.program", {.what = "program " + name,
                                   .got = "no program of that name in PATH",
                                   .hint = fs::exists(name) ? "did you mean ./" + name + "?" : ""});
}

}  // namespace

std::int64_t number_of_processes(const LaunchOptions& options) {
  if (options.num_processes) return *options.num_processes;
  const std::int64_t gpus = options.use_cpu ? 0 : gpus_here();
  if (options.gpu_ids != "all")
    return static_cast<std::int64_t>(split(options.gpu_ids, ',').size());
  return std::max<std::int64_t>(1, gpus);
}

std::vector<RankCommand> rank_commands(const LaunchConfiguration& run, int port, int attempt,
                                       const std::string& job) {
  const LaunchOptions& options = run.options;
  const std::int64_t count = number_of_processes(options);
  std::vector<std::string> program = run.program;
  program[0] = found_program(program[0]);
  std::vector<RankCommand> commands;
  for (std::int64_t rank = 0; rank < count; ++rank) {
    RankCommand command{.program = program};
    const auto set = [&](const char* name, const auto& value) {
      command.environment.push_back(str(name, "=", value));
    };
    set("RANK", rank);
    set("LOCAL_RANK", rank);
    set("WORLD_SIZE", count);
    set("LOCAL_WORLD_SIZE", count);
    set("GROUP_RANK", 0);
    set("GROUP_WORLD_SIZE", 1);
    set("ROLE_NAME", "default");
    set("ROLE_RANK", rank);
    set("ROLE_WORLD_SIZE", count);
    set("MASTER_ADDR", "127.0.0.1");
    set("MASTER_PORT", port);
    set("TORCHELASTIC_RUN_ID", job);
    set("TORCHELASTIC_RESTART_COUNT", attempt);
    set("TORCHELASTIC_MAX_RESTARTS", options.max_restarts);
    set("TORCHELASTIC_USE_AGENT_STORE", "False");
    set(kJobVariable, job);
    if (options.num_cpu_threads_per_process) {
      set("OMP_NUM_THREADS", *options.num_cpu_threads_per_process);
    } else if (std::getenv("OMP_NUM_THREADS") == nullptr) {
      set("OMP_NUM_THREADS",
          std::max<std::int64_t>(1, static_cast<std::int64_t>(cores_here().size()) / count));
    }
    set("ACCELERATE_MIXED_PRECISION", name_of(options.mixed_precision));
    if (options.use_cpu) set("ACCELERATE_USE_CPU", "true");
    if (options.debug) set("ACCELERATE_DEBUG_MODE", "true");
    if (options.gpu_ids != "all") set("CUDA_VISIBLE_DEVICES", options.gpu_ids);
    commands.push_back(std::move(command));
  }
  return commands;
}

std::string launch_text(const LaunchConfiguration& run) {
  std::string text = config::resolved_text(run.values, config::Show::all);
  const auto commands = rank_commands(run, /*port=*/0, /*attempt=*/0, "JOB");
  for (std::size_t rank = 0; rank < commands.size(); ++rank) {
    text += str("\n# rank ", rank, " (the port is chosen when it starts)\n");
    for (const std::string& variable : commands[rank].environment)
      text += (starts_with(variable, "MASTER_PORT=") ? "MASTER_PORT=PORT" : variable) + "\n";
    text += join(commands[rank].program, " ") + "\n";
  }
  return text;
}

}  // namespace hasten
