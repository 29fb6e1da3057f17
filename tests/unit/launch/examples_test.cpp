// examples/launching: what its files say is what worker_of understands and hasten writes.
#include <doctest/doctest.h>
#include <yaml-cpp/yaml.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "hasten/base/files.h"
#include "hasten/launch/slurm_script.h"
#include "hasten/launch/worker.h"

using namespace hasten;

namespace {

const std::string kFolder = HASTEN_SOURCE "/examples/launching/";

}  // namespace

TEST_CASE("examples: slurm.sbatch is what hasten launch --slurm writes") {
  const std::vector<const char*> words = {"--slurm",  "--num_machines",
                                          "4",        "--num_processes",
                                          "16",       "--slurm_time",
                                          "12:00:00", "--slurm_gpus_per_node",
                                          "4",        "--slurm_cpus_per_task",
                                          "32",       "--mixed_precision",
                                          "bf16",     "./train",
                                          "--epochs", "3"};
  const auto run = parse_launch(static_cast<int>(words.size()), words.data(), {});
  CHECK(to_text(slurm_script(run, "hasten")) == read_file(kFolder + "slurm.sbatch"));
}

TEST_CASE("examples: scripts are a shell's") {
  for (const char* file : {"slurm.sbatch", "open_mpi.sh"}) {
    CAPTURE(file);
    CHECK(std::system(("bash -n " + kFolder + file).c_str()) == 0);
  }
}

TEST_CASE("examples: kubernetes.yaml tells each pod its rank and where rank 0 is") {
  const std::vector<YAML::Node> parts = YAML::LoadAllFromFile(kFolder + "kubernetes.yaml");
  REQUIRE(parts.size() == 2);
  const YAML::Node service = parts[0], job = parts[1];
  CHECK(service["kind"].as<std::string>() == "Service");
  CHECK(service["spec"]["clusterIP"].as<std::string>() == "None");
  CHECK(service["spec"]["publishNotReadyAddresses"].as<bool>());
  const auto service_name = service["metadata"]["name"].as<std::string>();
  const auto job_name = job["metadata"]["name"].as<std::string>();
  CHECK(service["spec"]["selector"]["job-name"].as<std::string>() == job_name);

  CHECK(job["kind"].as<std::string>() == "Job");
  const YAML::Node spec = job["spec"], pod = spec["template"]["spec"];
  CHECK(spec["completionMode"].as<std::string>() == "Indexed");
  CHECK(spec["completions"].as<int>() == spec["parallelism"].as<int>());
  CHECK(spec["backoffLimit"].as<int>() == 0);
  CHECK(pod["subdomain"].as<std::string>() == service_name);
  CHECK(pod["restartPolicy"].as<std::string>() == "Never");

  config::Environment environment = {{"JOB_COMPLETION_INDEX", "2"},
                                     {"KUBERNETES_SERVICE_HOST", "10.96.0.1"}};
  bool token = false;
  for (const YAML::Node& variable : pod["containers"][0]["env"]) {
    const auto name = variable["name"].as<std::string>();
    if (variable["value"]) environment[name] = variable["value"].as<std::string>();
    if (name == "HASTEN_JOB_TOKEN")
      token = !variable["value"] && variable["valueFrom"]["secretKeyRef"];
  }
  CHECK(token);
  const Worker worker = worker_of(environment);
  CHECK(worker.started_by == StartedBy::kubernetes);
  CHECK(worker.rank == 2);
  CHECK(worker.world_size == spec["completions"].as<int>());
  CHECK(worker.master_addr == job_name + "-0." + service_name);
  CHECK(worker.master_port == 29500);
}
