// Sets the environment of each rank: torchrun's variables, Accelerate's settings, hasten's job
// name.
#include <algorithm>
#include <cstdlib>

#include "hasten/base/text.h"
#include "hasten/launch/launcher.h"
#include "launch/cores.h"
#include "launch/cuda_launch_device.h"
#include "launch/job.h"
#include "launch/launch_device.h"
#include "launch/programs.h"
#include "launch/rank_variables.h"
#include "launch/slurm_tasks.h"
#include "launch/thread_waiting.h"
#include "machine/token.h"

namespace hasten {

std::int64_t processes_on_this_machine(const LaunchConfiguration& run) {
  const LaunchOptions& options = run.options;
  if (options.nproc_per_node) return *options.nproc_per_node;
  if (options.num_processes) return *options.num_processes / run.machines.max_count;
  return device_processes(options).value_or(1);
}

std::vector<RankCommand> rank_commands(const LaunchConfiguration& run, const Round& round,
                                       const std::string& job) {
  const LaunchOptions& options = run.options;
  const std::int64_t count = round.processes;
  std::vector<std::string> program = run.program;
  program[0] = find_program(program[0]);
  const Topology topology = topology_of("/", usable_cpus());
  std::vector<std::vector<int>> cores(static_cast<std::size_t>(count));  // empty means all
  if (options.enable_cpu_affinity)
    cores = partition_cores(topology, cores.size(),
                            gpus_of_processes(options, topology.gpu_nodes.size(), count));
  const std::vector<VariableList> of_devices = device_variables(options, round);
  std::vector<RankCommand> commands;
  for (std::int64_t local = 0; local < count; ++local) {
    RankCommand command{
        .program = program, .environment = {}, .cores = cores[static_cast<std::size_t>(local)]};
    const auto set = [&](const std::string& name, const auto& value) {
      command.environment.push_back(str(name, "=", value));
    };
    const auto set_all = [&](const VariableList& variables) {
      for (const auto& [name, value] : variables) set(name, value);
    };
    set_all(rank_variables(round, local, options.max_restarts, job));
    if (options.num_cpu_threads_per_process) {
      set("OMP_NUM_THREADS", *options.num_cpu_threads_per_process);
    } else if (std::getenv("OMP_NUM_THREADS") == nullptr) {
      set("OMP_NUM_THREADS", threads_per_process(topology, count));
    }
    if (const auto variable = thread_waiting_variable()) set(variable->first, variable->second);
    set("ACCELERATE_MIXED_PRECISION", name_of(options.mixed_precision));
    if (options.use_cpu) set("ACCELERATE_USE_CPU", "true");
    if (options.resume) set("HASTEN_RESUME_RUNS", "true");
    if (options.debug) set("ACCELERATE_DEBUG_MODE", "true");
    if (options.encrypt) set("HASTEN_ENCRYPT", *options.encrypt ? "true" : "false");
    set_all(of_devices[static_cast<std::size_t>(local)]);
    commands.push_back(std::move(command));
  }
  return commands;
}

namespace {

// Hides the values that are unknown before the start, and the secret token.
std::string redact_variable(const std::string& variable) {
  if (starts_with(variable, "MASTER_PORT=0")) return "MASTER_PORT=PORT";
  if (variable == "MASTER_ADDR=") return "MASTER_ADDR=ADDRESS";
  if (starts_with(variable, str(kStoreVariable, "="))) return str(kStoreVariable, "=HOST:PORT");
  if (starts_with(variable, str(kTokenVariable, "="))) return str(kTokenVariable, "=(secret)");
  return redact_device_variable(variable);
}

std::string numbers_text(const std::vector<int>& numbers) {
  std::vector<std::string> words;
  for (const int number : numbers) words.push_back(std::to_string(number));
  return join(words, ",");
}

// Returns the round as far as it is known. With several machines, ranks may be assigned only when
// the machines meet.
Round round_before_start(const LaunchConfiguration& run) {
  const Machines& machines = run.machines;
  const std::int64_t here = processes_on_this_machine(run),
                     machine = std::max<std::int64_t>(0, machines.rank);
  const config::Environment environment = config::whole_environment();
  const Variables variables(environment);
  return {
      .attempt = slurm_restarts(variables),
      .machine_rank = machine,
      .num_machines = machines.max_count,
      .first_rank = machine * here,
      .world_size = here * machines.max_count,
      .processes = here,
      .master_addr = machines.has_several() ? machines.rank < 0 ? "" : machines.host : "127.0.0.1",
      .master_port = machines.has_several() ? 0 : machines.port,
      .run_id = user_or_slurm_job_name(run.options.rdzv_id, variables)};
}

}  // namespace

void check_rank_commands(const LaunchConfiguration& run) {
  rank_commands(run, round_before_start(run), "");
}

std::string launch_text(const LaunchConfiguration& run) {
  std::string text = config::resolved_text(run.values, config::ValueFilter::all);
  const Round round = round_before_start(run);
  const auto commands = rank_commands(run, round, "JOB");
  for (std::size_t local = 0; local < commands.size(); ++local) {
    text += str("\n# rank ", round.first_rank + static_cast<std::int64_t>(local),
                run.machines.rank < 0 && run.machines.has_several()
                    ? " (may differ: ranks are assigned when the machines meet)\n"
                    : " (values in capitals are chosen at the start)\n");
    for (const std::string& variable : commands[local].environment)
      text += redact_variable(variable) + "\n";
    if (!commands[local].cores.empty())
      text += "# on the CPUs " + numbers_text(commands[local].cores) + "\n";
    text += join(commands[local].program, " ") + "\n";
  }
  return text;
}

}  // namespace hasten
