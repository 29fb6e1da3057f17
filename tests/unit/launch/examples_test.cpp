// worker_of understands the files of examples/launching, and hasten writes the same files.
#include <doctest/doctest.h>
#include <yaml-cpp/yaml.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "hasten/base/files.h"
#include "hasten/launch/slurm_script.h"
#include "hasten/launch/worker.h"
#include "launch/duplicate_launcher.h"

namespace launch_examples_test {

using namespace hasten;

namespace {

const std::string kFolder = HASTEN_SOURCE "/examples/launching/";

// A headless service, and a job with pods.
struct Manifest {
  std::string service_name, job_name;
  YAML::Node spec, container;
};

Manifest manifest_of(const std::string& file) {
  const std::vector<YAML::Node> parts = YAML::LoadAllFromFile(kFolder + file);
  REQUIRE(parts.size() == 2);
  const YAML::Node service = parts[0], job = parts[1];
  CHECK(service["kind"].as<std::string>() == "Service");
  CHECK(service["spec"]["clusterIP"].as<std::string>() == "None");
  CHECK(service["spec"]["publishNotReadyAddresses"].as<bool>());
  Manifest manifest{.service_name = service["metadata"]["name"].as<std::string>(),
                    .job_name = job["metadata"]["name"].as<std::string>(),
                    .spec = job["spec"],
                    .container = job["spec"]["template"]["spec"]["containers"][0]};
  CHECK(service["spec"]["selector"]["job-name"].as<std::string>() == manifest.job_name);
  CHECK(job["kind"].as<std::string>() == "Job");
  const YAML::Node pod = manifest.spec["template"]["spec"];
  CHECK(manifest.spec["completionMode"].as<std::string>() == "Indexed");
  CHECK(manifest.spec["completions"].as<int>() == manifest.spec["parallelism"].as<int>());
  CHECK(pod["subdomain"].as<std::string>() == manifest.service_name);
  CHECK(pod["restartPolicy"].as<std::string>() == "Never");
  return manifest;
}

// The environment of a container in pod `index`; this test invents the token of the secret.
config::Environment environment_of(const Manifest& manifest, int index) {
  config::Environment environment = {{"JOB_COMPLETION_INDEX", std::to_string(index)},
                                     {"KUBERNETES_SERVICE_HOST", "10.96.0.1"}};
  for (const YAML::Node& variable : manifest.container["env"]) {
    const auto name = variable["name"].as<std::string>();
    if (variable["value"]) environment[name] = variable["value"].as<std::string>();
    if (name == "HASTEN_JOB_TOKEN") {
      CHECK(!variable["value"]);
      CHECK(variable["valueFrom"]["secretKeyRef"]["name"].as<std::string>() == "train-token");
      environment[name] = "0123456789abcdef0123456789abcdef";
    }
  }
  CHECK(environment.count("HASTEN_JOB_TOKEN") == 1);
  return environment;
}

}  // namespace

TEST_CASE("examples: slurm.sbatch equals the output of hasten launch --slurm") {
  const std::vector<std::string> arguments = {"--slurm",  "--num_machines",
                                              "4",        "--num_processes",
                                              "16",       "--slurm_time",
                                              "12:00:00", "--slurm_gpus_per_node",
                                              "4",        "--slurm_cpus_per_task",
                                              "32",       "--mixed_precision",
                                              "bf16",     "./train",
                                              "--epochs", "3"};
  const auto run = parse_launch(arguments, {});
  CHECK(to_text(slurm_script(run, "hasten")) == read_file(kFolder + "slurm.sbatch"));
}

TEST_CASE("examples: scripts are valid for a shell") {
  for (const char* file : {"slurm.sbatch", "open_mpi.sh"}) {
    CAPTURE(file);
    CHECK(std::system(("bash -n " + kFolder + file).c_str()) == 0);
  }
}

TEST_CASE("examples: kubernetes.yaml gives each pod its rank and the address of rank 0") {
  const Manifest manifest = manifest_of("kubernetes.yaml");
  CHECK(manifest.spec["backoffLimit"].as<int>() == 0);
  const Worker worker = worker_of(environment_of(manifest, 2));
  CHECK(worker.started_by == LauncherKind::kubernetes);
  CHECK(worker.rank == 2);
  CHECK(worker.world_size == manifest.spec["completions"].as<int>());
  CHECK(worker.master_addr == manifest.job_name + "-0." + manifest.service_name);
  CHECK(worker.master_port == 29500);
}

TEST_CASE("examples: kubernetes_launch.yaml starts launchers that find each other") {
  const Manifest manifest = manifest_of("kubernetes_launch.yaml");
  CHECK(manifest.spec["backoffLimit"].as<int>() > 0);
  const int machines = manifest.spec["completions"].as<int>();
  for (int index = 0; index < machines; ++index) {
    const config::Environment environment = environment_of(manifest, index);
    std::vector<std::string> arguments;
    for (const YAML::Node& node : manifest.container["command"]) {
      auto argument = node.as<std::string>();
      // Kubernetes substitutes variables of the container.
      if (argument == "$(JOB_COMPLETION_INDEX)") argument = environment.at("JOB_COMPLETION_INDEX");
      arguments.push_back(argument);
    }
    REQUIRE(arguments.size() > 2);
    CHECK(arguments[0] == "hasten");
    CHECK(arguments[1] == "launch");
    const auto run = parse_launch({arguments.begin() + 2, arguments.end()}, environment);
    CHECK(run.machines.max_count == machines);
    CHECK(run.machines.min_count == machines);
    CHECK(run.machines.rank == index);
    CHECK(run.machines.host == manifest.job_name + "-0." + manifest.service_name);
    CHECK(run.machines.port == 29500);
    CHECK(run.options.nproc_per_node ==
          manifest.container["resources"]["limits"]["nvidia.com/gpu"].as<int>());
    CHECK(run.options.max_restarts > 0);
    CHECK(run.program == std::vector<std::string>{"./train", "--epochs", "3"});
    CHECK_NOTHROW(check_not_duplicate_launcher(run, environment));
  }
}

}  // namespace launch_examples_test
