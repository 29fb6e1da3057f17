// Launchers that were started by launchers.
#include "launch/duplicate_launcher.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "hasten/base/files.h"
#include "unit/code_of.h"

namespace launch_duplicate_launcher_test {

using namespace hasten;

namespace {

std::string code(const std::vector<std::string>& arguments,
                 const config::Environment& environment) {
  const auto run =
      parse_launch(arguments, {{"HASTEN_JOB_TOKEN", "0123456789abcdef0123456789abcdef"}});
  return code_of([&] { check_not_duplicate_launcher(run, environment); });
}

// There are two hosts, so that no variable has the address where the processes meet.
const config::Environment kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                                      {"OMPI_COMM_WORLD_SIZE", "2"},
                                      {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
const config::Environment kHydra = {
    {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}};
const config::Environment kSrun = {
    {"SLURM_STEP_ID", "0"},        {"SLURM_STEP_NUM_TASKS", "2"},
    {"SLURM_NTASKS", "2"},         {"SLURM_PROCID", "1"},
    {"SLURM_LOCALID", "0"},        {"SLURM_NODEID", "1"},
    {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}};
const config::Environment kIndexedJob = {{"JOB_COMPLETION_INDEX", "1"}, {"WORLD_SIZE", "4"}};

config::Environment with(config::Environment environment, const std::string& name,
                         const std::string& value) {
  environment[name] = value;
  return environment;
}

}  // namespace

TEST_CASE("duplicate launcher: one of several is refused, unless its options name machines") {
  for (const auto& environment : {kOpenMpi, kHydra, kSrun, kIndexedJob}) {
    CHECK(code({"p"}, environment) == "launch.one-of-many");
    CHECK(code({"-n", "4", "p"}, environment) == "launch.one-of-many");
    CHECK(code({"--num_machines", "1", "p"}, environment) == "none");
    CHECK(code({"--nnodes=1", "p"}, environment) == "none");
    CHECK(code({"--standalone", "p"}, environment) == "none");
    CHECK(code({"--num_machines", "2", "--machine_rank", "1", "--main_process_ip", "h", "p"},
               environment) == "none");
  }
  // num_machines: 1 in a file does not count, because every configuration file has it.
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "launch.yaml").string();
  write_file_atomically(file, "num_machines: 1\n");
  CHECK(code({"--config_file", file.c_str(), "p"}, kOpenMpi) == "launch.one-of-many");
}

TEST_CASE("duplicate launcher: a single launcher may launch, also in a script or in a rank") {
  CHECK(code({"p"}, {}) == "none");
  CHECK(code({"p"}, with(kOpenMpi, "OMPI_COMM_WORLD_SIZE", "x")) == "none");
  CHECK(code({"p"}, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}) == "none");
  CHECK(code({"p"}, {{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "7"}}) ==
        "none");
  CHECK(code({"p"}, {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}}) == "none");
  CHECK(code({"p"}, {{"WORLD_SIZE", "2"}}) == "none");
  // A pod of Kubeflow has a rank and no local rank.
  CHECK(code({"p"}, {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"KUBERNETES_SERVICE_HOST", "h"}}) ==
        "launch.one-of-many");
}

}  // namespace launch_duplicate_launcher_test
