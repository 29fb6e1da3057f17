// The rank of a started process, from tables of valid and invalid environments of launchers.
#include "hasten/launch/worker.h"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include "hasten/base/text.h"
#include "launch/slurm_tasks.h"
#include "unit/code_of.h"

namespace launch_worker_test {

using namespace hasten;

namespace {

// Parses "RANK=1 WORLD_SIZE=2"; no value here has a space.
config::Environment environment_of(const std::string& assignments) {
  config::Environment environment;
  for (const std::string& assignment : split(assignments, ' ')) {
    const auto equals = assignment.find('=');
    if (equals != std::string::npos)
      environment[assignment.substr(0, equals)] = assignment.substr(equals + 1);
  }
  return environment;
}

// Returns a text such as "torchrun 1/4, local 1/2, machine 0/2, host:29500".
std::string text_of(const Worker& worker) {
  std::string text = str(name_of(worker.started_by), " ", worker.rank, "/", worker.world_size,
                         ", local ", worker.local_rank, "/", worker.local_world_size, ", machine ",
                         worker.machine_rank, "/", worker.num_machines);
  if (worker.world_size > 1) text += str(", ", worker.master_addr, ":", worker.master_port);
  return text;
}

std::string refusal(const std::string& assignments) {
  try {
    return text_of(worker_of(environment_of(assignments)));
  } catch (const ConfigError& error) {
    CHECK(error.code() == "launch.environment");
    return error.what();
  }
}

struct Row {
  std::string environment;
  std::string expected;
};

const std::string kEndpoint = "MASTER_ADDR=node7 MASTER_PORT=1234 ";
const std::string kRun = kEndpoint + "RANK=3 LOCAL_RANK=1 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 ";
const std::string kOmpi =
    "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 "
    "OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_NODE_RANK=1 ";
const std::string kOmpiOneMachine =
    "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 "
    "OMPI_COMM_WORLD_LOCAL_SIZE=2 ";
const std::string kMvapich =
    "MV2_COMM_WORLD_RANK=2 MV2_COMM_WORLD_SIZE=4 MV2_COMM_WORLD_LOCAL_RANK=0 "
    "MV2_COMM_WORLD_LOCAL_SIZE=2 ";
const std::string kHydra = "PMI_FD=6 PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 ";
const std::string kStep =
    "SLURM_JOB_ID=4711 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=7 SLURM_NTASKS=7 SLURM_PROCID=6 "
    "SLURM_LOCALID=0 SLURM_NODEID=3 SLURM_STEP_NUM_NODES=4 SLURM_STEP_TASKS_PER_NODE=2(x3),1 "
    "SLURM_STEP_NODELIST=gpu[08-11] SLURM_JOB_NODELIST=gpu[07-11] ";
const std::string kBatch =
    "SLURM_JOB_ID=4711 SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 "
    "SLURM_JOB_NODELIST=gpu[1-2] SLURM_TASKS_PER_NODE=2(x2) ";

// Returns the same variables with one of them changed or removed.
std::string with(const std::string& assignments, const std::string& name,
                 const std::string& value) {
  config::Environment environment = environment_of(assignments);
  environment[name] = value;
  std::string text;
  for (const auto& [key, entry] : environment) text += str(key, "=", entry, " ");
  return text;
}

}  // namespace

TEST_CASE("worker: the variables of every launcher are understood") {
  const std::vector<Row> rows = {
      // No launcher.
      {"", "no launcher 0/1, local 0/1, machine 0/1"},
      {"HOME=/root MASTER_ADDR=h MASTER_PORT=1", "no launcher 0/1, local 0/1, machine 0/1"},
      {"WORLD_SIZE=1", "no launcher 0/1, local 0/1, machine 0/1"},
      {"RANK=0", "no launcher 0/1, local 0/1, machine 0/1"},
      {"RANK= WORLD_SIZE=", "no launcher 0/1, local 0/1, machine 0/1"},
      {"LOCAL_RANK=3", "no launcher 0/1, local 0/1, machine 0/1"},
      // torchrun and hasten launch.
      {kRun + "GROUP_RANK=1 GROUP_WORLD_SIZE=2",
       "torchrun 3/4, local 1/2, machine 1/2, node7:1234"},
      {kRun, "torchrun 3/4, local 1/2, machine 1/2, node7:1234"},
      {kRun + "HASTEN_JOB_ID=abc", "hasten launch 3/4, local 1/2, machine 1/2, node7:1234"},
      {kRun + "KUBERNETES_SERVICE_HOST=10.0.0.1",
       "torchrun 3/4, local 1/2, machine 1/2, node7:1234"},
      {kRun + kOmpiOneMachine, "torchrun 3/4, local 1/2, machine 1/2, node7:1234"},
      {kRun + kStep, "torchrun 3/4, local 1/2, machine 1/2, node7:1234"},
      {with(kRun, "MASTER_ADDR", "fd00::2"), "torchrun 3/4, local 1/2, machine 1/2, fd00::2:1234"},
      {with(kRun, "MASTER_ADDR", "[fd00::2]"),
       "torchrun 3/4, local 1/2, machine 1/2, fd00::2:1234"},
      {with(kRun, "MASTER_PORT", "65535"), "torchrun 3/4, local 1/2, machine 1/2, node7:65535"},
      {with(kRun, "MASTER_PORT", ""), "torchrun 3/4, local 1/2, machine 1/2, node7:29500"},
      {with(kRun, "MASTER_PORT", "") + "SLURM_JOB_ID=4711",
       "torchrun 3/4, local 1/2, machine 1/2, node7:24711"},
      {with(kRun, "MASTER_ADDR", "") + "SLURM_JOB_NODELIST=gpu[1-2]",
       "torchrun 3/4, local 1/2, machine 1/2, gpu1:1234"},
      {"RANK=0 WORLD_SIZE=1", "torchrun 0/1, local 0/1, machine 0/1"},
      {"RANK=0 WORLD_SIZE=1 LOCAL_RANK=0", "torchrun 0/1, local 0/1, machine 0/1"},
      {"RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 HASTEN_JOB_ID=j",
       "hasten launch 0/1, local 0/1, machine 0/1"},
      {"RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=7",
       "torchrun 1/2, local 1/2, machine 0/1, 127.0.0.1:7"},
      {"RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=7",
       "torchrun 1/2, local 1/2, machine 0/1, localhost:7"},
      // Kubeflow's PyTorchJob.
      {kEndpoint + "RANK=2 WORLD_SIZE=4 KUBERNETES_SERVICE_HOST=10.0.0.1",
       "Kubernetes 2/4, local 0/1, machine 2/4, node7:1234"},
      {kEndpoint + "RANK=2 WORLD_SIZE=4", "torchrun 2/4, local 0/1, machine 2/4, node7:1234"},
      // An indexed job, and Volcano.
      {kEndpoint + "JOB_COMPLETION_INDEX=3 WORLD_SIZE=4",
       "Kubernetes 3/4, local 0/1, machine 3/4, node7:1234"},
      {"MASTER_ADDR=job-0.job JOB_COMPLETION_INDEX=3 WORLD_SIZE=4",
       "Kubernetes 3/4, local 0/1, machine 3/4, job-0.job:29500"},
      {kEndpoint + "VC_TASK_INDEX=1 VK_TASK_INDEX=1 WORLD_SIZE=2",
       "Kubernetes 1/2, local 0/1, machine 1/2, node7:1234"},
      {"JOB_COMPLETION_INDEX=3", "no launcher 0/1, local 0/1, machine 0/1"},
      {"JOB_COMPLETION_INDEX=0 WORLD_SIZE=1", "Kubernetes 0/1, local 0/1, machine 0/1"},
      // Open MPI.
      {kOmpiOneMachine + "PMIX_NAMESPACE=1773010945",
       str("Open MPI 1/2, local 1/2, machine 0/1, 127.0.0.1:", port_of_job("1773010945"))},
      {kOmpiOneMachine + "OMPI_MCA_ess_base_jobid=77",
       "Open MPI 1/2, local 1/2, machine 0/1, 127.0.0.1:20077"},
      {kOmpiOneMachine, "Open MPI 1/2, local 1/2, machine 0/1, 127.0.0.1:29500"},
      {kOmpiOneMachine + "OMPI_MCA_orte_num_nodes=2 PMIX_NAMESPACE=77",
       "Open MPI 1/2, local 1/2, machine 0/1, 127.0.0.1:20077"},
      {kOmpi + kEndpoint, "Open MPI 3/4, local 1/2, machine 1/2, node7:1234"},
      {kOmpi + kEndpoint + "WORLD_SIZE=4", "Open MPI 3/4, local 1/2, machine 1/2, node7:1234"},
      {kOmpi + "MASTER_ADDR=node7 PMIX_NAMESPACE=77",
       "Open MPI 3/4, local 1/2, machine 1/2, node7:20077"},
      {kOmpi + "SLURM_JOB_NODELIST=gpu[3-4] SLURM_JOB_ID=12 PMIX_NAMESPACE=77",
       "Open MPI 3/4, local 1/2, machine 1/2, gpu3:20077"},
      {kOmpi + "SLURM_JOB_NODELIST=gpu[3-4] SLURM_STEP_NODELIST=gpu4 SLURM_STEP_NUM_TASKS=1 "
               "SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_JOB_ID=12",
       "Open MPI 3/4, local 1/2, machine 1/2, gpu3:20012"},
      // Three processes run on the first machine, and one runs on the second.
      {kEndpoint + "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 "
                   "OMPI_COMM_WORLD_LOCAL_SIZE=1 OMPI_MCA_orte_num_nodes=2",
       "Open MPI 3/4, local 0/1, machine 1/2, node7:1234"},
      {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 "
       "OMPI_COMM_WORLD_LOCAL_SIZE=1 OMPI_MCA_orte_num_nodes=3",
       "Open MPI 0/1, local 0/1, machine 0/1"},
      // MVAPICH, MPICH, Intel MPI.
      {kMvapich + kEndpoint, "MVAPICH 2/4, local 0/2, machine 1/2, node7:1234"},
      {kMvapich + "PMI_RANK=2 PMI_SIZE=4 " + kEndpoint,
       "MVAPICH 2/4, local 0/2, machine 1/2, node7:1234"},
      {kHydra + kEndpoint, "PMI 2/4, local 0/2, machine 1/2, node7:1234"},
      {kHydra + "MASTER_ADDR=node7 PBS_JOBID=12.server", str("PMI 2/4, local 0/2, machine 1/2, "
                                                             "node7:",
                                                             port_of_job("12.server"))},
      {with(with(kHydra, "PMI_SIZE", "2"), "PMI_RANK", "1") + "MPI_LOCALRANKID=1",
       "PMI 1/2, local 1/2, machine 0/1, 127.0.0.1:29500"},
      {kHydra + kBatch, "PMI 2/4, local 0/2, machine 1/2, gpu1:24711"},
      {"PMI_RANK=0 PMI_SIZE=1", "PMI 0/1, local 0/1, machine 0/1"},
      // Slurm.
      {kStep, str("Slurm 6/7, local 0/1, machine 3/4, gpu08:", port_of_job("4711.0"))},
      {kStep + kEndpoint, "Slurm 6/7, local 0/1, machine 3/4, node7:1234"},
      {kStep + kEndpoint + "WORLD_SIZE=7", "Slurm 6/7, local 0/1, machine 3/4, node7:1234"},
      {kStep + kEndpoint + "PMI_RANK=6 PMI_SIZE=7 PMI_JOBID=4711.0",
       "Slurm 6/7, local 0/1, machine 3/4, node7:1234"},
      {with(with(with(kStep, "SLURM_NODEID", "2"), "SLURM_LOCALID", "1"), "SLURM_PROCID", "5") +
           kEndpoint,
       "Slurm 5/7, local 1/2, machine 2/4, node7:1234"},
      {with(kStep, "SLURM_STEP_NODELIST", "") + "MASTER_PORT=9",
       "Slurm 6/7, local 0/1, machine 3/4, gpu07:9"},
      {"SLURM_JOB_ID=5 SLURM_STEP_ID=2 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 SLURM_LOCALID=1 "
       "SLURM_NODEID=0 SLURM_STEP_NUM_NODES=1 SLURM_STEP_TASKS_PER_NODE=2",
       str("Slurm 1/2, local 1/2, machine 0/1, 127.0.0.1:", port_of_job("5.2"))},
      {"SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_JOB_ID=5",
       "Slurm 0/1, local 0/1, machine 0/1"},
      {kBatch, "no launcher 0/1, local 0/1, machine 0/1"},
      {kBatch + "SLURM_STEP_ID=4294967291 SLURM_STEP_NUM_TASKS=4",
       "no launcher 0/1, local 0/1, machine 0/1"},
      {kBatch + "SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2",
       "no launcher 0/1, local 0/1, machine 0/1"},
      {kBatch + "SLURM_STEP_ID=4294967290 SLURM_STEP_NUM_TASKS=4",
       "no launcher 0/1, local 0/1, machine 0/1"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.environment);
    CHECK(refusal(row.environment) == row.expected);
  }
}

TEST_CASE("worker: contradictory variables are refused, and the message names the variable") {
  const std::vector<Row> rows = {
      {with(kRun, "RANK", "4"), "RANK: got 4, expected less than WORLD_SIZE (4)"},
      {with(kRun, "RANK", "-1"), "RANK: got '-1', expected a whole number of at least 0"},
      {with(kRun, "RANK", "one"), "RANK: got 'one'"},
      {with(kRun, "RANK", "1.0"), "RANK: got '1.0'"},
      {with(kRun, "RANK", "0x1"), "RANK: got '0x1'"},
      {with(kRun, "RANK", "99999999999999999999"), "RANK: got '99999999999999999999'"},
      {with(kRun, "RANK", "+1"), "RANK: got '+1'"},
      {with(kRun, "WORLD_SIZE", "0"), "WORLD_SIZE: got 0, expected a whole number of at least 1"},
      {with(kRun, "WORLD_SIZE", "-4"), "WORLD_SIZE: got '-4'"},
      {with(kRun, "WORLD_SIZE", "four"), "WORLD_SIZE: got 'four'"},
      {with(kRun, "LOCAL_RANK", "2"), "LOCAL_RANK: got 2, expected less than LOCAL_WORLD_SIZE (2)"},
      {with(kRun, "LOCAL_RANK", "x"), "LOCAL_RANK: got 'x'"},
      {with(kRun, "LOCAL_RANK", ""),
       "LOCAL_RANK is not set, but other variables of the same launcher are"},
      {with(kRun, "LOCAL_WORLD_SIZE", "0"), "LOCAL_WORLD_SIZE: got 0, expected from 1 to"},
      {with(kRun, "LOCAL_WORLD_SIZE", "5"),
       "LOCAL_WORLD_SIZE: got 5, expected from 1 to WORLD_SIZE (4)"},
      {with(kRun, "LOCAL_WORLD_SIZE", ""), "LOCAL_WORLD_SIZE is not set"},
      {kRun + "GROUP_RANK=2 GROUP_WORLD_SIZE=2", "GROUP_RANK: got 2, expected less than"},
      {kRun + "GROUP_RANK=0 GROUP_WORLD_SIZE=5", "GROUP_WORLD_SIZE: got 5, expected from 1 to"},
      {kRun + "GROUP_RANK=0 GROUP_WORLD_SIZE=0", "GROUP_WORLD_SIZE: got 0"},
      {kRun + "GROUP_RANK=first", "GROUP_RANK: got 'first'"},
      {kRun + "TORCHELASTIC_RESTART_COUNT=-1", "TORCHELASTIC_RESTART_COUNT: got '-1'"},
      {with(kRun, "MASTER_PORT", "0"), "MASTER_PORT: got 0, expected a port from 1 to 65535"},
      {with(kRun, "MASTER_PORT", "65536"), "MASTER_PORT: got 65536"},
      {with(kRun, "MASTER_PORT", "http"), "MASTER_PORT: got 'http'"},
      {with(kRun, "MASTER_PORT", "-5"), "MASTER_PORT: got '-5'"},
      {with(kRun, "MASTER_ADDR", ""), "no address for 4 processes started by torchrun"},
      {with(kRun, "MASTER_ADDR", "node7:29500"), "set the port in MASTER_PORT"},
      {with(kRun, "MASTER_ADDR", "tcp://node7"), "MASTER_ADDR: got 'tcp://node7'"},
      {with(kRun, "MASTER_ADDR", "a,b"), "MASTER_ADDR: got 'a,b'"},
      {with(kRun, "MASTER_ADDR", "[]"), "MASTER_ADDR: got ''"},
      {"RANK=0 WORLD_SIZE=2", "no address for 2 processes"},
      {"WORLD_SIZE=2", "WORLD_SIZE: got 2 without RANK"},
      {"WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1", "WORLD_SIZE: got 2 without RANK"},
      {"WORLD_SIZE=many", "WORLD_SIZE: got 'many'"},
      {"RANK=1", "RANK: got 1 without WORLD_SIZE"},
      {kBatch + "WORLD_SIZE=4", "WORLD_SIZE: got 4 without RANK"},
      {kOmpi, "mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=29500"},
      {kOmpi + kEndpoint + "WORLD_SIZE=8",
       "WORLD_SIZE: got 8, expected 4, the value of OMPI_COMM_WORLD_SIZE"},
      {with(kOmpi, "OMPI_COMM_WORLD_RANK", "4") + kEndpoint, "OMPI_COMM_WORLD_RANK: got 4"},
      {with(kOmpi, "OMPI_COMM_WORLD_RANK", "") + kEndpoint, "OMPI_COMM_WORLD_RANK is not set"},
      {with(kOmpi, "OMPI_COMM_WORLD_LOCAL_RANK", "2") + kEndpoint,
       "OMPI_COMM_WORLD_LOCAL_RANK: got 2"},
      {with(kOmpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "9") + kEndpoint,
       "OMPI_COMM_WORLD_LOCAL_SIZE: got 9"},
      {kOmpi + "SLURM_JOB_NODELIST=gpu[4-3]", "ascending ranges"},
      {kMvapich, "set MASTER_ADDR to rank 0's host"},
      {with(kMvapich, "MV2_COMM_WORLD_LOCAL_SIZE", "") + kEndpoint,
       "MV2_COMM_WORLD_LOCAL_SIZE is not set"},
      {kHydra, "mpiexec -genv MASTER_ADDR HOST"},
      {kEndpoint + "PMI_RANK=2 PMI_SIZE=4", "MPI_LOCALNRANKS is not set"},
      {with(kHydra, "PMI_RANK", "7") + kEndpoint,
       "PMI_RANK: got 7, expected less than PMI_SIZE (4)"},
      {with(kStep, "SLURM_PROCID", "7"),
       "SLURM_PROCID: got 7, expected less than SLURM_STEP_NUM_TASKS (7)"},
      {with(kStep, "SLURM_PROCID", ""), "SLURM_PROCID is not set"},
      {with(kStep, "SLURM_NODEID", "4"), "SLURM_STEP_TASKS_PER_NODE: got '2(x3),1'"},
      {with(kStep, "SLURM_NODEID", ""), "SLURM_NODEID is not set"},
      {with(kStep, "SLURM_LOCALID", "1"), "SLURM_LOCALID: got 1, expected less than"},
      {with(kStep, "SLURM_STEP_TASKS_PER_NODE", "2(x3"), "SLURM_STEP_TASKS_PER_NODE: got '2(x3'"},
      {with(kStep, "SLURM_STEP_TASKS_PER_NODE", "2(3),1"), "SLURM_STEP_TASKS_PER_NODE: got"},
      {with(kStep, "SLURM_STEP_TASKS_PER_NODE", ""), "SLURM_STEP_TASKS_PER_NODE: got ''"},
      {with(kStep, "SLURM_STEP_TASKS_PER_NODE", "0(x4)"), "SLURM_STEP_TASKS_PER_NODE: got"},
      {with(kStep, "SLURM_STEP_TASKS_PER_NODE", "-2(x4)"), "SLURM_STEP_TASKS_PER_NODE: got"},
      {with(kStep, "SLURM_STEP_TASKS_PER_NODE", "8(x4)"),
       "the number of processes on this machine: got 8"},
      {with(kStep, "SLURM_STEP_NODELIST", "gpu[1-"), "matching brackets"},
      {with(kStep, "SLURM_STEP_NUM_NODES", "8"), "SLURM_STEP_NUM_NODES: got 8"},
      {kStep + "WORLD_SIZE=14",
       "WORLD_SIZE: got 14, expected 7, the value of SLURM_STEP_NUM_TASKS"},
      {kStep + "SLURM_RESTART_COUNT=again", "SLURM_RESTART_COUNT: got 'again'"},
      {kEndpoint + "JOB_COMPLETION_INDEX=4 WORLD_SIZE=4", "JOB_COMPLETION_INDEX: got 4"},
      {"JOB_COMPLETION_INDEX=1 WORLD_SIZE=4", "no address for 4 processes started by Kubernetes"},
      {kEndpoint + "VC_TASK_INDEX=x WORLD_SIZE=4", "VC_TASK_INDEX: got 'x'"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.environment);
    const std::string text = refusal(row.environment);
    CAPTURE(text);
    CHECK(text.find(row.expected) != std::string::npos);
  }
}

TEST_CASE("worker: attempts, jobs, the address and the port come from the right variables") {
  const Worker torchrun =
      worker_of(environment_of(kRun + "TORCHELASTIC_RUN_ID=fine-tune TORCHELASTIC_RESTART_COUNT=2 "
                                      "TORCHELASTIC_USE_AGENT_STORE=True SLURM_RESTART_COUNT=5"));
  CHECK(torchrun.attempt == 2);
  CHECK(torchrun.job == "fine-tune");
  CHECK(torchrun.store_is_served);
  CHECK(torchrun.address_source == "MASTER_ADDR");
  CHECK(torchrun.port_source == "MASTER_PORT");
  CHECK_FALSE(
      worker_of(environment_of(kRun + "TORCHELASTIC_USE_AGENT_STORE=False")).store_is_served);
  CHECK_FALSE(worker_of(environment_of(kOmpi + kEndpoint + "TORCHELASTIC_USE_AGENT_STORE=True"))
                  .store_is_served);

  const Worker slurm = worker_of(environment_of(
      kStep + "SLURM_RESTART_COUNT=3 SLURM_ARRAY_JOB_ID=4700 SLURM_ARRAY_TASK_ID=11"));
  CHECK(slurm.attempt == 3);
  CHECK(slurm.job == "4700_11");
  CHECK(slurm.address_source == "the first host of SLURM_STEP_NODELIST");
  CHECK(slurm.port_source == "the job's number 4711.0");

  const Worker mpi = worker_of(environment_of(kOmpiOneMachine + "PMIX_NAMESPACE=77"));
  CHECK(mpi.job == "77");
  CHECK(mpi.address_source == "all processes are on this machine");
  CHECK(worker_of(environment_of(kOmpiOneMachine + "PMIX_NAMESPACE=77 PBS_JOBID=9")).job == "9");

  const Worker alone = worker_of(environment_of("RANK=0 WORLD_SIZE=1 " + kEndpoint));
  CHECK(alone.master_addr.empty());
  CHECK(alone.master_port == 0);
}

TEST_CASE("worker: a job of Slurm keeps its name and counts how often Slurm has started it") {
  const auto restarts = [](const std::string& assignments) {
    const config::Environment environment = environment_of(assignments);
    return slurm_restarts(Variables(environment));
  };
  CHECK(restarts("SLURM_JOB_ID=4711") == 0);
  CHECK(restarts("SLURM_JOB_ID=4711 SLURM_RESTART_COUNT=3") == 3);
  CHECK(restarts("SLURM_RESTART_COUNT=1099511627775") == 1 << 20);
  CHECK(code_of([&] { restarts("SLURM_RESTART_COUNT=x"); }) == "launch.environment");
  const config::Environment job = environment_of("SLURM_JOB_ID=4711 SLURM_STEP_ID=2");
  CHECK(slurm_job_name(Variables(job)) == "4711");
}

TEST_CASE("worker: neighbouring jobs and steps have different ports") {
  CHECK(port_of_job("4711") == 24711);
  CHECK(port_of_job("9973") == 20000);
  CHECK(port_of_job("") == 20000);
  CHECK(port_of_job("4711.0") != port_of_job("4711.1"));
  CHECK(port_of_job("4711_1") != port_of_job("4712_1"));
  CHECK(port_of_job("99999999999999999999999999") >= 20000);
  std::set<int> jobs, steps, families;
  for (int number = 0; number < 9973; ++number) {
    jobs.insert(port_of_job(str(123456 + number)));
    steps.insert(port_of_job(str("4711.", number)));
    families.insert(port_of_job(str(65536LL * number + 1)));  // mpirun's numbers
  }
  CHECK(jobs.size() == 9973);
  CHECK(steps.size() == 9973);
  CHECK(families.size() == 9973);
  CHECK(*jobs.begin() == 20000);
  CHECK(*jobs.rbegin() == 29972);
}

TEST_CASE("worker: any value of one variable gives a valid place or an error of hasten") {
  const std::vector<std::string> starts = {
      kRun + "GROUP_RANK=1 GROUP_WORLD_SIZE=2 TORCHELASTIC_RESTART_COUNT=1",
      kOmpi + kEndpoint + "OMPI_MCA_orte_num_nodes=2 PMIX_NAMESPACE=77",
      kMvapich + kEndpoint,
      kHydra + kEndpoint,
      kStep + "SLURM_RESTART_COUNT=1",
      kHydra + kBatch,
      kEndpoint + "JOB_COMPLETION_INDEX=3 WORLD_SIZE=4"};
  const std::vector<std::string> values = {"",       "0",         "1",
                                           "2",      "3",         "4",
                                           "7",      "65536",     "1099511627775",
                                           "-1",     "1.5",       " 1",
                                           "1 ",     "x",         "0x2",
                                           "(null)", "2(x2)",     "2(x99999999999)",
                                           "a[1",    "[]",        ",",
                                           "1,",     "a,b",       "h:1",
                                           "::1",    "\xff",      "9223372036854775807",
                                           "00",     "+2",        "١",
                                           "1e3",    "node[1-2]", "a[1-2]b[3-4]"};
  int placed = 0, refused = 0;
  for (const std::string& start : starts) {
    for (const auto& [name, was] : environment_of(start)) {
      for (const std::string& value : values) {
        CAPTURE(name);
        CAPTURE(value);
        config::Environment environment = environment_of(start);
        environment[name] = value;
        try {
          const Worker worker = worker_of(environment);
          ++placed;
          CHECK((0 <= worker.rank && worker.rank < worker.world_size));
          CHECK((0 <= worker.local_rank && worker.local_rank < worker.local_world_size));
          CHECK((0 <= worker.machine_rank && worker.machine_rank < worker.num_machines));
          CHECK((worker.local_world_size <= worker.world_size &&
                 worker.num_machines <= worker.world_size && worker.attempt >= 0));
          if (worker.world_size > 1)
            CHECK((!worker.master_addr.empty() && worker.master_port >= 1));
        } catch (const ConfigError& error) {
          ++refused;
          CHECK(error.code() == "launch.environment");
        }
      }
    }
  }
  MESSAGE("placed: ", placed, ", refused: ", refused);
  CHECK(placed > 300);
  CHECK(refused > 500);
}

}  // namespace launch_worker_test
