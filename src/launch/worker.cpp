// Finds who has started this process, and which of the started processes it is.
#include "hasten/launch/worker.h"

#include <algorithm>

#include "hasten/base/text.h"
#include "launch/master_endpoint.h"
#include "launch/slurm_tasks.h"
#include "launch/variables.h"
#include "rendezvous/sockets.h"

namespace hasten {
namespace {

// The names of the variables that tell a process its rank; empty if the launcher has no such
// variable.
struct LauncherVariables {
  LauncherKind by;
  const char* rank;
  const char* world;
  const char* local_rank = "";
  const char* local_world = "";
  const char* machine = "";
  const char* machines = "";
};

constexpr LauncherVariables kTorchrun = {
    LauncherKind::torchrun, "RANK",       "WORLD_SIZE",      "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",     "GROUP_RANK", "GROUP_WORLD_SIZE"};
constexpr LauncherVariables kOpenMpi = {LauncherKind::open_mpi,       "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",       "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE", "",
                                        "OMPI_MCA_orte_num_nodes"};
constexpr LauncherVariables kMvapich = {LauncherKind::mvapich, "MV2_COMM_WORLD_RANK",
                                        "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
                                        "MV2_COMM_WORLD_LOCAL_SIZE"};
constexpr LauncherVariables kPmi = {LauncherKind::pmi, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
                                    "MPI_LOCALNRANKS"};
constexpr LauncherVariables kSlurm = {
    LauncherKind::slurm, "SLURM_PROCID",        "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "",
    "SLURM_NODEID",      "SLURM_STEP_NUM_NODES"};
constexpr LauncherVariables kIndexedJob = {LauncherKind::kubernetes, "JOB_COMPLETION_INDEX",
                                           "WORLD_SIZE"};
constexpr LauncherVariables kVolcano = {LauncherKind::kubernetes, "VC_TASK_INDEX", "WORLD_SIZE"};

// Hydra is the mpiexec of MPICH and Intel MPI. srun --mpi=pmi2 sets PMI's variables too, but not
// the local ones.
bool is_hydra(const Variables& variables) {
  return variables.has("PMI_SIZE") &&
         (variables.has("MPI_LOCALRANKID") || !is_slurm_task(variables));
}

const LauncherVariables* find_launcher_variables(const Variables& variables) {
  const bool world = variables.has("WORLD_SIZE");
  if (world && variables.has("RANK")) return &kTorchrun;
  if (variables.has(kOpenMpi.world)) return &kOpenMpi;
  if (variables.has(kMvapich.world)) return &kMvapich;
  if (is_hydra(variables)) return &kPmi;
  if (is_slurm_task(variables)) return &kSlurm;
  if (world && variables.has(kIndexedJob.rank)) return &kIndexedJob;
  if (world && variables.has(kVolcano.rank)) return &kVolcano;
  return nullptr;
}

// Throws if a variable mentions other processes. No launcher has given this process a rank.
void check_single_process(const Variables& variables) {
  if (variables.number("WORLD_SIZE").value_or(1) != 1)
    throw_environment({.what = "WORLD_SIZE",
                       .got = variables.text("WORLD_SIZE") + " without RANK",
                       .expected = "both variables, or WORLD_SIZE = 1",
                       .hint = "set RANK too, or start with hasten launch"});
  if (variables.number("RANK").value_or(0) != 0)
    throw_environment({.what = "RANK",
                       .got = variables.text("RANK") + " without WORLD_SIZE",
                       .expected = "both variables, or RANK = 0",
                       .hint = "set WORLD_SIZE too, or start with hasten launch"});
}

// Scripts for Slurm and MPI often export WORLD_SIZE; it must agree with the launcher's number.
void check_world_size_matches(const LauncherVariables& names, const Worker& worker,
                              const Variables& variables) {
  const auto other = variables.number("WORLD_SIZE");
  if (other && *other != worker.world_size)
    throw_environment({.what = "WORLD_SIZE",
                       .got = str(*other),
                       .expected = str(worker.world_size, ", the value of ", names.world),
                       .hint = "unset WORLD_SIZE, or set RANK too"});
}

void check_below(std::int64_t value, const char* name, std::int64_t limit, const char* of) {
  if (value >= limit)
    throw_environment(
        {.what = name, .got = str(value), .expected = str("less than ", of, " (", limit, ")")});
}

LauncherKind detect_launcher_kind(const LauncherVariables& names, const Variables& variables) {
  if (names.by != LauncherKind::torchrun) return names.by;
  if (variables.has("HASTEN_JOB_ID")) return LauncherKind::hasten;
  // Kubeflow's PyTorchJob uses torchrun's names, for one process per pod.
  const bool pod = variables.has("KUBERNETES_SERVICE_HOST") && !variables.has("LOCAL_RANK");
  return pod ? LauncherKind::kubernetes : LauncherKind::torchrun;
}

void set_rank(Worker& worker, const LauncherVariables& names, const Variables& variables) {
  worker.world_size = variables.required_number(names.world);
  if (worker.world_size < 1)
    throw_environment(
        {.what = names.world, .got = "0", .expected = "a whole number of at least 1"});
  check_world_size_matches(names, worker, variables);
  worker.rank = variables.required_number(names.rank);
  check_below(worker.rank, names.rank, worker.world_size, names.world);
}

// Returns the number of this machine's processes if no single variable gives it.
std::int64_t derive_local_world_size(const Worker& worker, const LauncherVariables& names,
                                     const Variables& variables) {
  if (worker.world_size == 1) return 1;
  if (names.by == LauncherKind::slurm)
    return tasks_of_machine(variables.text("SLURM_STEP_TASKS_PER_NODE"),
                            variables.required_number(names.machine));
  // A launcher with one process per pod or machine does not set local ranks.
  if (names.by == LauncherKind::kubernetes ||
      (names.by == LauncherKind::torchrun && !variables.has(names.local_rank)))
    return 1;
  if (rendezvous::is_loopback(variables.text("MASTER_ADDR"))) return worker.world_size;
  throw_environment({.what = str(names.local_world, " is not set"),
                     .expected = "the number of processes on this machine",
                     .hint = "set it, or start with hasten launch"});
}

void set_local_rank(Worker& worker, const LauncherVariables& names, const Variables& variables) {
  const auto world = variables.number(names.local_world);
  worker.local_world_size = world ? *world : derive_local_world_size(worker, names, variables);
  const char* const name =
      *names.local_world ? names.local_world : "the number of processes on this machine";
  if (worker.local_world_size < 1 || worker.local_world_size > worker.world_size)
    throw_environment({.what = name,
                       .got = str(worker.local_world_size),
                       .expected = str("from 1 to ", names.world, " (", worker.world_size, ")")});
  worker.local_rank = worker.local_world_size > 1 ? variables.required_number(names.local_rank)
                                                  : variables.number(names.local_rank).value_or(0);
  check_below(worker.local_rank, names.local_rank, worker.local_world_size, name);
}

// If the launcher does not number its machines, they are assumed to be filled one after the other.
std::int64_t number_of_machines(const Worker& worker, const LauncherVariables& names,
                                const Variables& variables) {
  const std::int64_t each = worker.local_world_size;
  const std::int64_t derived = (worker.world_size + each - 1) / each;
  const std::int64_t given = variables.number(names.machines).value_or(derived);
  // mpirun also counts machines on which it starts nothing.
  return names.by == LauncherKind::open_mpi ? std::min(given, derived) : given;
}

void set_machine(Worker& worker, const LauncherVariables& names, const Variables& variables) {
  worker.num_machines = number_of_machines(worker, names, variables);
  if (worker.num_machines < 1 || worker.num_machines > worker.world_size)
    throw_environment({.what = names.machines,
                       .got = str(worker.num_machines),
                       .expected = str("from 1 to ", names.world, " (", worker.world_size, ")")});
  const std::int64_t filled =
      std::max<std::int64_t>(0, worker.rank - worker.local_rank) / worker.local_world_size;
  worker.machine_rank =
      variables.number(names.machine).value_or(std::min(filled, worker.num_machines - 1));
  check_below(worker.machine_rank, names.machine, worker.num_machines, names.machines);
}

}  // namespace

Worker worker_of(const config::Environment& environment) {
  const Variables variables(environment);
  Worker worker;
  const LauncherVariables* const names = find_launcher_variables(variables);
  if (names == nullptr) {
    check_single_process(variables);
    return worker;
  }
  worker.started_by = detect_launcher_kind(*names, variables);
  set_rank(worker, *names, variables);
  set_local_rank(worker, *names, variables);
  set_machine(worker, *names, variables);
  worker.attempt = variables.number("TORCHELASTIC_RESTART_COUNT")
                       .value_or(variables.number("SLURM_RESTART_COUNT").value_or(0));
  worker.job = find_job_name(worker, variables);
  if (worker.world_size > 1) set_master_endpoint(worker, variables);
  return worker;
}

}  // namespace hasten
