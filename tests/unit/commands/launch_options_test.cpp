// The options of hasten launch: the sources of each value, and the errors for invalid ones.
#include "hasten/options/launch_options.h"
#include "options/describe.h"

#include <doctest/doctest.h>

#include <cctype>

#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "machine/installed_gpus.h"

namespace commands_launch_options_test {

using namespace hasten;

namespace {

LaunchConfiguration parse_arguments(const std::vector<std::string>& arguments,
                                    const config::Environment& environment = {}) {
  return parse_launch(arguments, environment);
}

// Returns the message of the ConfigError, or an empty string if none was thrown.
std::string refusal(const std::vector<std::string>& arguments,
                    const config::Environment& environment = {}) {
  try {
    parse_arguments(arguments, environment);
  } catch (const ConfigError& error) {
    CHECK(error.exit_code() == 2);
    return error.what();
  }
  return "";
}

// Returns values that no option of this kind accepts.
std::vector<std::string> invalid_values(const config::Option& option) {
  switch (option.kind) {
    case config::Kind::boolean:
      return {"maybe", "2", "yes please"};
    case config::Kind::integer:
      return {"x", "1.5", "99999999999999999999", "-7", "1e3x", "0x10"};
    case config::Kind::number:
      return {"x", "1,5", "-1", "--"};
    case config::Kind::choice:
      return {"zzz", "no no", "0"};
    default:
      return {};
  }
}

std::string upper(std::string name) {
  for (char& character : name) character = static_cast<char>(std::toupper(character));
  return name;
}

std::string misspelt(const std::string& name) { return name.substr(0, name.size() - 1) + "zq"; }

}  // namespace

TEST_CASE("launch options: the program begins at the first argument that belongs to no option") {
  const auto run =
      parse_arguments({"-n", "4", "--quiet", "--log_dir=logs", "./train", "-n", "7", "--x"});
  CHECK(run.options.num_processes == 4);
  CHECK(run.options.quiet);
  CHECK(run.options.log_dir == "logs");
  CHECK(run.program == std::vector<std::string>{"./train", "-n", "7", "--x"});
  for (const char* no : {"false", "no", "off", "0", "N"}) {
    const auto run = parse_arguments({"--quiet", no, "p"});
    CHECK(run.program == std::vector<std::string>{"p"});
    CHECK_FALSE(run.options.quiet);
  }
  CHECK(parse_arguments({"--encrypt", "none", "p"}).program == std::vector<std::string>{"p"});
  CHECK(parse_arguments({"-n", "2", "--", "-odd-name"}).program ==
        std::vector<std::string>{"-odd-name"});
  CHECK(parse_arguments({"--num-processes", "3", "p"}).options.num_processes == 3);
}

TEST_CASE("launch options: a flag overrides the environment, which overrides files") {
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "launch.yaml").string();
  write_file_atomically(file, "num_processes: 2\nmax_restarts: 5\nmixed_precision: bf16\n");
  const auto run = parse_arguments({"--config_file", file, "-n", "4", "p"},
                                   {{"HASTEN_MAX_RESTARTS", "6"}, {"HASTEN_NUM_PROCESSES", "3"}});
  CHECK(run.options.num_processes == 4);
  CHECK(run.options.max_restarts == 6);
  CHECK(run.options.mixed_precision == Precision::bf16);
  // An environment variable may name the file.
  CHECK(parse_arguments({"p"}, {{"HASTEN_CONFIG_FILE", file}}).options.max_restarts == 5);
}

TEST_CASE("launch options: an invalid name or value is named, whatever its source") {
  const TemporaryDirectory folder;
  const std::string yaml = (folder.path() / "wrong.yaml").string(),
                    json = (folder.path() / "wrong.json").string();
  LaunchOptions options;
  config::OptionTable table;
  describe(table, options);
  int cases = 0;
  const auto check = [&](const std::string& name, const std::string& message,
                         const std::string& how) {
    ++cases;
    CAPTURE(name);
    CAPTURE(how);
    CAPTURE(message);
    CHECK(message.find(name) != std::string::npos);
  };
  for (const config::Option& option : table.options()) {
    const std::string& name = option.name;
    for (const std::string& value : invalid_values(option)) {
      if (option.status != config::Status::supported) continue;
      check(name, refusal({str("--", name, "=", value), "p"}), "flag " + value);
      write_file_atomically(yaml, str("# a file\n", name, ": \"", value, "\"\n"));
      const std::string in_yaml = refusal({"--config_file", yaml, "p"});
      check(name, in_yaml, "YAML " + value);
      check("wrong.yaml:2", in_yaml, "its line");
      write_file_atomically(json, str("{\"", name, "\": \"", value, "\"}"));
      check(name, refusal({"--config_file", json, "p"}), "JSON " + value);
      // HASTEN_DRY_RUN belongs to the anatomy and is not an option here.
      if (name != "dry_run")
        check(upper(name), refusal({"p"}, {{"HASTEN_" + upper(name), value}}), "variable " + value);
    }
    // A misspelt name is refused.
    check(misspelt(name), refusal({str("--", misspelt(name)), "1", "p"}), "misspelt flag");
    write_file_atomically(yaml, str(misspelt(name), ": 1\n"));
    check(misspelt(name), refusal({"--config_file", yaml, "p"}), "misspelt key");
    // An option without its value is refused.
    if (option.kind != config::Kind::boolean && option.kind != config::Kind::list)
      CHECK(!refusal({str("--", name)}).empty());
    ++cases;
  }
  MESSAGE("invalid lines: ", cases);
  CHECK(cases >= 300);
}

TEST_CASE("launch options: tee and redirects accept only maps of ranks to outputs") {
  CHECK(parse_arguments({"-t", "3", "--log_dir", "l", "p"}).options.tee == "3");
  CHECK(parse_arguments({"-r", "0:1,3:2", "--log-dir", "l", "p"}).options.redirects == "0:1,3:2");
  CHECK(parse_arguments({"--tee=0", "--redirects", "1:0", "p"}).options.tee ==
        "0");  // no output is kept
  CHECK(parse_arguments({"p"}, {{"HASTEN_TEE", "1"}, {"HASTEN_LOG_DIR", "l"}}).options.tee == "1");
  for (const char* option : {"--tee", "--redirects", "-t", "-r"}) {
    for (const char* wrong :
         {"4", "-1", "x", "3,1", "0:4", "0:", ":1", "0:1,", ",", "0:1,0:2", "1.0", "0:1:2", "-1:1",
          "4096:1", "0: 1", "stdout", "99999999999999999999"}) {
      CAPTURE(option);
      CAPTURE(wrong);
      const std::string text = refusal({option, wrong, "--log_dir", "l", "p"});
      CHECK(text.find(option[1] == 't' || option[2] == 't' ? "tee" : "redirects") == 0);
    }
    CHECK(refusal({option, "1", "p"}).find("--log_dir logs") != std::string::npos);
    CHECK(refusal({option, "0:0,1:3", "p"}).find("log_dir is not set") != std::string::npos);
    CHECK(refusal({option}).find("has no value") != std::string::npos);
  }
}

TEST_CASE("launch options: torchrun's names work, with dashes or underscores") {
  const auto run =
      parse_arguments({"--nnodes=2", "--nproc-per-node=4", "--node-rank=1", "--master-addr",
                       "10.0.0.1", "--master_port", "29501", "p", "--node_rank", "x"},
                      {{"HASTEN_JOB_TOKEN", "0123456789abcdef0123456789abcdef"}});
  CHECK(run.machines.rank == 1);
  CHECK(run.machines.host == "10.0.0.1");
  CHECK(run.machines.port == 29501);
  CHECK(run.options.nproc_per_node == 4);
  CHECK(run.program == std::vector<std::string>{"p", "--node_rank", "x"});
  CHECK(run.notices.empty());
  const auto elastic =
      parse_arguments({"--nnodes", "1:2", "--rdzv-endpoint", "h:1", "--rdzv-backend", "c10d",
                       "--rdzv-id", "7", "--max-restarts", "3", "p"},
                      {{"HASTEN_JOB_TOKEN", "0123456789abcdef0123456789abcdef"}});
  CHECK(elastic.machines.port == 1);
  CHECK(elastic.options.rdzv_id == "7");
  CHECK(elastic.options.max_restarts == 3);
  CHECK(!parse_arguments({"--standalone", "--nproc-per-node", "2", "p"}).machines.has_several());
  CHECK(refusal({"--standalone", "--nnodes", "2", "p"}).find("standalone with 2 machines") == 0);
  CHECK(refusal({"--standalone", "--nnodes", "1:3", "p"}).find("standalone with 3 machines") == 0);
  CHECK(refusal({"--node-rank", "x", "p"}).find("--machine_rank: got 'x'") == 0);
}

TEST_CASE("launch options: nproc_per_node accepts gpu, cpu and auto") {
  const auto count = [](const char* kind) {
    return parse_arguments({"--nproc_per_node", kind, "p"}).options.nproc_per_node.value_or(0);
  };
  CHECK(count("cpu") >= 1);
  const std::size_t gpus = config::visible_gpus().size();
  CHECK(count("auto") == (gpus > 0 ? static_cast<std::int64_t>(gpus) : count("cpu")));
  if (gpus == 0)
    CHECK(refusal({"--nproc_per_node", "gpu", "p"}).find("a GPU in this machine") !=
          std::string::npos);
  CHECK(refusal({"--nproc_per_node", "tpu", "p"}).find("--nproc_per_node") == 0);
  CHECK(refusal({"--slurm", "--nproc_per_node", "cpu", "p"})
            .find("which count the devices of this machine") != std::string::npos);
}

TEST_CASE("launch options: Kubeflow's variables are weaker than hasten's, stronger than files") {
  const std::string token = "0123456789abcdef0123456789abcdef";
  const config::Environment fixed = {
      {"HASTEN_JOB_TOKEN", token}, {"PET_NNODES", "2"},      {"PET_NPROC_PER_NODE", "4"},
      {"PET_NODE_RANK", "1"},      {"PET_MASTER_ADDR", "h"}, {"PET_MASTER_PORT", "29501"},
      {"PET_MAX_RESTARTS", "3"},   {"PET_LOG_LEVEL", "x"},   {"PET_RDZV_ID", ""}};
  const auto with = [](config::Environment environment, const std::string& name,
                       const std::string& value) {
    environment[name] = value;
    return environment;
  };
  const auto run = parse_arguments({"p"}, fixed);
  CHECK(run.machines.max_count == 2);
  CHECK(run.machines.rank == 1);
  CHECK(run.machines.host == "h");
  CHECK(run.machines.port == 29501);
  CHECK(run.options.nproc_per_node == 4);
  CHECK(run.options.max_restarts == 3);
  CHECK(run.notices.empty());
  for (const auto& value : run.values) {
    if (value.name == "machine_rank") CHECK(config::to_text(value.origin) == "PET_NODE_RANK");
  }
  const auto elastic = parse_arguments({"p"}, {{"HASTEN_JOB_TOKEN", token},
                                               {"PET_NNODES", "1:4"},
                                               {"PET_RDZV_ENDPOINT", "train-0:23456"},
                                               {"PET_RDZV_BACKEND", "c10d"},
                                               {"PET_RDZV_ID", "train"},
                                               {"PET_NPROC_PER_NODE", "auto"}});
  CHECK(elastic.machines.min_count == 1);
  CHECK(elastic.machines.port == 23456);
  CHECK(elastic.options.nproc_per_node.value_or(0) >= 1);
  // Stronger sources override a value, under the same name or a different one.
  CHECK(parse_arguments({"p"}, with(fixed, "HASTEN_MAX_RESTARTS", "7")).options.max_restarts == 7);
  CHECK(parse_arguments({"--num_machines", "3", "p"}, fixed).machines.max_count == 3);
  CHECK(parse_arguments({"--rdzv_endpoint", "g:1", "p"}, fixed).machines.host == "g");
  const auto other_port = parse_arguments({"--main_process_port", "7", "p"}, fixed);
  CHECK(other_port.machines.host == "h");
  CHECK(other_port.machines.port == 7);
  CHECK(
      parse_arguments({"--main_process_ip", "g", "p"}, with(fixed, "PET_RDZV_ENDPOINT", "h:29501"))
          .machines.host == "g");
  CHECK(parse_arguments({"-n", "6", "p"}, fixed).options.num_processes == 6);
  CHECK_FALSE(parse_arguments({"-n", "6", "p"}, fixed).options.nproc_per_node.has_value());
  // A configuration file is a weaker source and overrides nothing.
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "launch.yaml").string();
  write_file_atomically(file,
                        "num_machines: 1\nnum_processes: 1\nmachine_rank: 0\nmax_restarts: 9\n");
  const auto over = parse_arguments({"--config_file", file, "p"}, fixed);
  CHECK(over.machines.max_count == 2);
  CHECK(over.machines.rank == 1);
  CHECK(over.options.max_restarts == 3);
  CHECK_FALSE(over.options.num_processes.has_value());
  // Errors use the names that the user wrote.
  for (const auto& [name, value] : {std::pair{"PET_NPROC_PER_NODE", "x"},
                                    {"PET_NODE_RANK", "-1"},
                                    {"PET_MASTER_PORT", "70000"},
                                    {"PET_MASTER_PORT", "http"},
                                    {"PET_RDZV_BACKEND", "etcd"},
                                    {"PET_MAX_RESTARTS", "-1"},
                                    {"PET_NPROC_PER_NODE", "0"}}) {
    CAPTURE(value);
    CHECK(refusal({"p"}, with(fixed, name, value)).find(name) == 0);
  }
  CHECK(!refusal({"p"}, with(fixed, "PET_NNODES", "two")).empty());
  CHECK(!refusal({"p"}, with(fixed, "PET_RDZV_ENDPOINT", "h:x")).empty());
  CHECK(!refusal({"p"}, with(fixed, "PET_NODE_RANK", "2")).empty());
}

TEST_CASE("launch options: a stronger source overrides a different name of the same thing") {
  const config::Environment token = {{"HASTEN_JOB_TOKEN", "0123456789abcdef0123456789abcdef"}};
  const auto with = [&](const std::string& name, const std::string& value) {
    config::Environment environment = token;
    environment[name] = value;
    return environment;
  };
  const TemporaryDirectory folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    const std::string file = (folder.path() / name).string();
    write_file_atomically(file, text);
    return file;
  };
  // A flag or a variable overrides a file.
  const std::string single =
      write("single.yaml", "num_machines: 1\nnum_processes: 1\nmachine_rank: 0\n");
  const auto run = parse_arguments({"--config_file", single, "--nproc_per_node", "4", "p"});
  CHECK(run.options.nproc_per_node == 4);
  CHECK_FALSE(run.options.num_processes.has_value());
  const auto elastic = parse_arguments({"--config_file", single, "--nnodes", "2:4",
                                        "--rdzv_endpoint", "g:1", "--nproc_per_node", "8", "p"},
                                       token);
  CHECK(elastic.machines.max_count == 4);
  CHECK_FALSE(elastic.options.num_machines.has_value());
  CHECK(parse_arguments({"--config_file", single, "p"}, {{"HASTEN_NPROC_PER_NODE", "4"}})
            .options.nproc_per_node == 4);
  const std::string several =
      write("several.yaml", "num_machines: 2\nmachine_rank: 1\nmain_process_ip: h\n");
  CHECK(parse_arguments({"--config_file", several, "--rdzv_endpoint", "g:1", "p"}, token)
            .machines.host == "g");
  const auto other_port =
      parse_arguments({"--config_file", several, "p"}, with("PET_MASTER_PORT", "7"));
  CHECK(other_port.machines.host == "h");
  CHECK(other_port.machines.port == 7);
  // A port replaces that of a weaker endpoint, and leaves its address.
  for (const char* const endpoint : {"h:29400", "[::1]:29400", "h"}) {
    CAPTURE(endpoint);
    const auto moved = parse_arguments({"--main_process_port", "7", "p"},
                                       {{"PET_NNODES", "2"},
                                        {"PET_RDZV_ENDPOINT", endpoint},
                                        {"HASTEN_JOB_TOKEN", "0123456789abcdef"}});
    CHECK(moved.machines.host == (endpoint[0] == '[' ? "::1" : "h"));
    CHECK(moved.machines.port == 7);
  }
  // A flag overrides a variable, and a later file an earlier one.
  CHECK(parse_arguments({"--nproc_per_node", "4", "p"}, {{"HASTEN_NUM_PROCESSES", "1"}})
            .options.nproc_per_node == 4);
  const std::string later = write("later.yaml", "nnodes: '1'\nmachine_rank: 0\n");
  CHECK_FALSE(
      parse_arguments({"--config_file", several + "," + later, "p"}).machines.has_several());
  // Within one source, names that contradict each other are an error.
  CHECK(refusal({"--num_machines", "2", "--nnodes", "3", "--rdzv_endpoint", "g:1", "p"}, token)
            .find("num_machines is 2, but nnodes is 3") == 0);
  CHECK(refusal({"--num_processes", "3", "--nproc_per_node", "2", "p"})
            .find("num_processes is 3, but nproc_per_node is 2") == 0);
  const std::string wrong = write("wrong.yaml", "num_processes: 3\nnproc_per_node: 2\n");
  CHECK(
      refusal({"--config_file", wrong, "p"}).find("num_processes is 3, but nproc_per_node is 2") ==
      0);
}

TEST_CASE("launch options: a file's machine_rank does not count if ranks are assigned") {
  const std::string token = "0123456789abcdef0123456789abcdef";
  const config::Environment plain = {{"HASTEN_JOB_TOKEN", token}};
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "launch.yaml").string();
  // These are keys of each file that Accelerate writes for a single machine.
  write_file_atomically(file, "num_machines: 1\nmachine_rank: 0\nrdzv_backend: static\n");
  const auto rank_of = [&](std::vector<std::string> arguments,
                           const config::Environment& environment) {
    arguments.insert(arguments.begin(), {"--config_file", file});
    arguments.emplace_back("p");
    return parse_arguments(arguments, environment).machines.rank;
  };
  const std::vector<std::string> endpoint = {"--num_machines", "2", "--rdzv_endpoint", "g:1"};
  CHECK(rank_of(endpoint, plain) == -1);
  CHECK(rank_of({"--nnodes", "2:4", "--rdzv_endpoint", "g:1"}, plain) == -1);
  CHECK(rank_of({"--nnodes", "2", "--master_addr", "g", "--rdzv_backend", "c10d"}, plain) == -1);
  CHECK(rank_of({},
                {{"HASTEN_JOB_TOKEN", token}, {"PET_NNODES", "2"}, {"PET_RDZV_ENDPOINT", "g:1"}}) ==
        -1);
  // A rank of a flag or a variable counts, and so does the file's rank if ranks are not assigned.
  CHECK(rank_of(endpoint, {{"HASTEN_JOB_TOKEN", token}, {"HASTEN_MACHINE_RANK", "1"}}) == 1);
  CHECK(rank_of({"--nnodes", "2", "--rdzv_endpoint", "g:1", "--node_rank", "1"}, plain) == 1);
  CHECK(rank_of({"--nnodes", "2", "--rdzv_endpoint", "g:1", "--rdzv_backend", "static"}, plain) ==
        0);
  CHECK(rank_of({"--nnodes", "2", "--master_addr", "g"}, plain) == 0);
}

}  // namespace commands_launch_options_test
