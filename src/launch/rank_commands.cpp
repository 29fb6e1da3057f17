// What each rank is told: torchrun's variables, Accelerate's settings, and our job's name.
#include <algorithm>
#include <cstdlib>

#include "hasten/base/text.h"
#include "hasten/config/machine.h"
#include "hasten/config/token.h"
#include "hasten/launch/launcher.h"
#include "launch/cores.h"
#include "launch/job.h"
#include "launch/programs.h"

namespace hasten {
std::int64_t processes_here(const LaunchConfiguration& run) {
  const LaunchOptions& options = run.options;
  if (options.nproc_per_node) return *options.nproc_per_node;
  if (options.num_processes) return *options.num_processes / run.machines.most;
  const std::int64_t gpus =
      options.use_cpu ? 0 : static_cast<std::int64_t>(config::installed_gpus().size());
  if (options.gpu_ids != "all")
    return static_cast<std::int64_t>(split(options.gpu_ids, ',').size());
  return std::max<std::int64_t>(1, gpus);
}

std::vector<RankCommand> rank_commands(const LaunchConfiguration& run, const Round& round,
                                       const std::string& job) {
  const LaunchOptions& options = run.options;
  const std::int64_t count = round.processes > 0 ? round.processes : processes_here(run);
  const std::int64_t world = std::max(round.world_size, count);
  std::vector<std::string> program = run.program;
  program[0] = found_program(program[0]);
  std::vector<RankCommand> commands;
  for (std::int64_t local = 0; local < count; ++local) {
    const std::int64_t rank = round.first_rank + local;
    RankCommand command{.program = program};
    const auto set = [&](const char* name, const auto& value) {
      command.environment.push_back(str(name, "=", value));
    };
    set("RANK", rank);
    set("LOCAL_RANK", local);
    set("WORLD_SIZE", world);
    set("LOCAL_WORLD_SIZE", count);
    set("GROUP_RANK", round.machine_rank);
    set("GROUP_WORLD_SIZE", round.num_machines);
    set("ROLE_NAME", "default");
    set("ROLE_RANK", rank);
    set("ROLE_WORLD_SIZE", world);
    set("MASTER_ADDR", round.master_addr);
    set("MASTER_PORT", round.master_port);
    set("TORCHELASTIC_RUN_ID", options.rdzv_id.empty() ? job : options.rdzv_id);
    set("TORCHELASTIC_RESTART_COUNT", round.attempt);
    set("TORCHELASTIC_MAX_RESTARTS", options.max_restarts);
    set("TORCHELASTIC_USE_AGENT_STORE", "False");
    set(kJobVariable, job);
    set(kStoreVariable, round.store);
    set(kTokenVariable, round.token);
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

namespace {

// What is not known before the start, or not for every eye.
std::string shown(const std::string& variable) {
  if (starts_with(variable, "MASTER_PORT=0")) return "MASTER_PORT=PORT";
  if (variable == "MASTER_ADDR=") return "MASTER_ADDR=ADDRESS";
  if (starts_with(variable, str(kStoreVariable, "="))) return str(kStoreVariable, "=HOST:PORT");
  if (starts_with(variable, str(kTokenVariable, "="))) return str(kTokenVariable, "=(secret)");
  return variable;
}

// As far as it can be known: with several machines ranks may be given only when they meet.
Round round_before_start(const LaunchConfiguration& run) {
  const Machines& machines = run.machines;
  const std::int64_t here = processes_here(run), machine = std::max<std::int64_t>(0, machines.rank);
  return {.machine_rank = machine,
          .num_machines = machines.most,
          .first_rank = machine * here,
          .world_size = here * machines.most,
          .processes = here,
          .master_addr = machines.several() ? machines.rank < 0 ? "" : machines.host : "127.0.0.1",
          .master_port = machines.several() ? 0 : machines.port};
}

}  // namespace

std::string launch_text(const LaunchConfiguration& run) {
  std::string text = config::resolved_text(run.values, config::Show::all);
  const Round round = round_before_start(run);
  const auto commands = rank_commands(run, round, "JOB");
  for (std::size_t local = 0; local < commands.size(); ++local) {
    text += str("\n# rank ", round.first_rank + static_cast<std::int64_t>(local),
                run.machines.rank < 0 && run.machines.several()
                    ? " (or another: ranks are given when the machines meet)\n"
                    : " (what is chosen when it starts is in capitals)\n");
    for (const std::string& variable : commands[local].environment) text += shown(variable) + "\n";
    text += join(commands[local].program, " ") + "\n";
  }
  return text;
}

}  // namespace hasten
