// Writes and updates configuration files: launch reads them back, and words that YAML would read as
// a different type are quoted.
#include "accelerate_file/launch_file.h"

#include "commands/config_options.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "unit/options/support.h"

namespace accelerate_file_launch_file_test {

using namespace hasten;
using config::LaunchFile;
using test::contains;

namespace {

LaunchConfiguration parse_file(const std::string& name, const std::string& text) {
  const test::TemporaryFile file(name, text);
  return parse_launch({"--config_file", file.path(), "program"}, {});
}

ConfigCommand command(const std::vector<std::string>& arguments,
                      const config::Environment& environment) {
  return parse_config(arguments, environment);
}

std::string update_file(const std::string& text, const std::string& name = "old.yaml") {
  return config::updated_launch_file(text, name).text;
}

}  // namespace

TEST_CASE("launch file: a written file is read back without a notice") {
  LaunchFile file;
  file.num_processes = 4;
  file.use_cpu = true;
  file.enable_cpu_affinity = true;
  file.mixed_precision = Precision::bf16;
  file.debug = true;
  file.max_restarts = 3;
  file.log_dir = "logs: 'of' today";
  for (const char* name : {"launch.yaml", "launch.json"}) {
    const auto run = parse_file(name, config::launch_file_text(file, test::contains(name, "json")));
    CHECK(run.options.num_processes == 4);
    CHECK(run.options.use_cpu);
    CHECK(run.options.enable_cpu_affinity);
    CHECK(run.options.mixed_precision == Precision::bf16);
    CHECK(run.options.distributed_type == DistributedType::MULTI_CPU);
    CHECK(run.options.debug);
    CHECK(run.options.max_restarts == 3);
    CHECK(run.options.log_dir == file.log_dir);
    CHECK(run.notices.empty());
  }
}

TEST_CASE("launch file: a file for TPUs is read back without a notice") {
  LaunchFile file = config::launch_file_for(0, 4);
  CHECK(file.tpu);
  CHECK(file.num_processes == 4);
  CHECK(!config::launch_file_for(2, 4).tpu);
  CHECK(config::launch_file_for(0, 0).use_cpu);
  file.mixed_precision = Precision::bf16;
  file.downcast_bf16 = true;
  file.tpu_env = {"A=it's", "B=a, b"};
  file.tpu_name = "mine";
  file.tpu_zone = "us-central2-b";
  file.commands = {"echo 'a'; b", "c: d"};
  for (const char* name : {"launch.yaml", "launch.json"}) {
    const std::string text = config::launch_file_text(file, test::contains(name, "json"));
    CAPTURE(text);
    const auto run = parse_file(name, text);
    CHECK(run.options.tpu);
    CHECK(run.options.distributed_type == DistributedType::XLA);
    CHECK(run.options.num_processes == 4);
    CHECK(run.options.downcast_bf16);
    CHECK(run.options.tpu_env == file.tpu_env);
    CHECK(run.notices.empty());
    CHECK(!contains(text, "gpu_ids"));
  }
  CHECK(!contains(config::launch_file_text(config::launch_file_for(0, 0), false), "tpu"));
}

TEST_CASE("launch file: an older file for TPUs keeps the keys that launch and tpu-config read") {
  const std::string keys =
      "downcast_bf16: 'yes'\ntpu_env: [A=1]\ntpu_name: mine\ntpu_zone: z\ncommands: [pwd]\n"
      "tpu_vm: ['']\ntpu_use_cluster: false\ntpu_use_sudo: true\nmixed_precision: bf16\n";
  const std::string kept = update_file("distributed_type: TPU\n" + keys);
  for (const char* line : {"distributed_type: XLA\n", "downcast_bf16: true\n", "tpu_name: mine\n",
                           "tpu_zone: z\n", "commands: [pwd]\n", "tpu_env: ['A=1']\n"})
    CHECK(contains(kept, line));
  for (const char* key : {"tpu_vm", "tpu_use_cluster", "tpu_use_sudo"}) CHECK(!contains(kept, key));
  CHECK(config::updated_launch_file(kept, "new.yaml").changes.empty());
  CHECK(parse_file("kept.yaml", kept).options.tpu);
  CHECK(contains(update_file("distributed_type: XLA\ntpu_use_cluster: true\n"), "tpu_use_cluster"));
  CHECK(!contains(update_file("distributed_type: MULTI_CPU\n" + keys), "tpu"));
  CHECK(!contains(update_file("distributed_type: MULTI_CPU\n" + keys), "downcast"));
}

TEST_CASE("launch file: words that YAML reads as another type are quoted") {
  LaunchFile file;
  file.gpu_ids = "0,1";
  const std::string text = config::launch_file_text(file, /*json=*/false);
  CHECK(contains(text, "\ndistributed_type: 'NO'\n"));
  CHECK(contains(text, "\nmixed_precision: 'no'\n"));
  CHECK(contains(text, "\ngpu_ids: '0,1'\n"));
  file.log_dir = "yes";
  CHECK(contains(config::launch_file_text(file, false), "\nlog_dir: 'yes'\n"));
  file.log_dir = "1e5";
  CHECK(contains(config::launch_file_text(file, false), "\nlog_dir: '1e5'\n"));
  file.log_dir = "line\nbreak";
  CHECK(contains(config::launch_file_text(file, false), "\nlog_dir: \"line\\nbreak\"\n"));
}

TEST_CASE("launch file: keys that Accelerate does not know are written if they are set") {
  LaunchFile file;
  CHECK(config::keys_unknown_to_accelerate(file).empty());
  CHECK(!contains(config::launch_file_text(file, false), "max_restarts"));
  CHECK(!contains(config::launch_file_text(file, false), "log_dir"));
  file.log_dir = "logs";
  CHECK(config::keys_unknown_to_accelerate(file) == std::vector<std::string>{"log_dir"});
  CHECK(contains(config::launch_file_text(file, false), "does not know log_dir"));
  CHECK(!contains(config::launch_file_text(file, false), "main_process_ip"));
  file.num_machines = 2;
  CHECK(contains(config::launch_file_text(file, false), "main_process_port: 29500\n"));
}

TEST_CASE("launch file: several machines are read back, static and elastic") {
  for (const char* backend : {"static", "c10d"}) {
    LaunchFile file;
    file.num_machines = 3;
    file.machine_rank = 2;
    file.main_process_ip = "10.0.0.1";
    file.main_process_port = 29501;
    file.rdzv_backend = backend;
    file.num_processes = 6;
    file.use_cpu = true;
    const test::TemporaryFile written("launch.yaml", config::launch_file_text(file, false));
    const auto run = parse_launch({"--config_file", written.path(), "program"},
                                  {{"HASTEN_JOB_TOKEN", "0123456789abcdef0123456789abcdef"}});
    CHECK(run.options.num_machines == 3);
    CHECK(run.options.machine_rank == 2);
    CHECK(run.options.main_process_ip == "10.0.0.1");
    CHECK(run.options.main_process_port == 29501);
    REQUIRE(run.options.rdzv_backend.has_value());
    CHECK(name_of(*run.options.rdzv_backend) == backend);
    CHECK(run.options.num_processes == 6);
    CHECK(run.notices.empty());
  }
}

TEST_CASE("update: known sections are kept under their current names") {
  const std::string text = update_file(
      "distributed_type: FSDP\nmixed_precision: fp8\nfsdp_config:\n  min_num_params: 100000000\n"
      "  fsdp_backward_prefetch_policy: BACKWARD_PRE\n  fsdp_offload_params: no\n"
      "fp8_config:\n  backend: TE\n  amax_history_length: 1024\n  amax_compute_algorithm: max\n"
      "  optimization_level: O2\n  override_linear_precision: [false, false, true]\n");
  CHECK(contains(text, "  fsdp_min_num_params: 100000000\n"));
  CHECK(contains(text, "  fsdp_backward_prefetch: BACKWARD_PRE\n"));
  CHECK(contains(text, "  fsdp_offload_params: false\n"));
  CHECK(contains(text, "  amax_history_len: 1024\n"));
  CHECK(contains(text, "  amax_compute_algo: max\n"));
  CHECK(contains(text, "  opt_level: O2\n"));
  CHECK(contains(text, "  override_linear_precision: [false, false, true]\n"));
}

TEST_CASE("update: every change is reported") {
  const auto now = config::updated_launch_file(
      "fp16: true\nuse_cpu: 'yes'\nnum_processes: 2\nmain_process_port: 29501\n"
      "dynamo_backend: 'NO'\nmain_training_function: main\nfsdp_config: {}\n"
      "deepspeed_config: {zero_stage: 2}\nparallelism_config: {parallelism_config_tp_size: 1}\n",
      "old.yaml");
  const std::string changes = join(now.changes, "\n");
  CHECK(contains(changes, "fp16 is now mixed_precision: fp16"));
  CHECK(contains(changes, "use_cpu: 'yes' is now true"));
  CHECK(contains(changes, "dynamo_backend is dropped"));
  CHECK(contains(changes, "main_training_function is dropped"));
  CHECK(contains(changes, "fsdp_config is dropped: it is empty"));
  CHECK(contains(changes, "deepspeed_config is dropped: distributed_type is not DEEPSPEED"));
  CHECK(contains(changes, "parallelism_config is dropped: every size is 1"));
  CHECK(contains(changes, "distributed_type: MULTI_CPU is added"));
  CHECK(contains(now.text, "main_process_port: 29501\n"));
  CHECK(contains(now.text, "distributed_type: MULTI_CPU\n"));
  // An updated file does not change again.
  CHECK(config::updated_launch_file(now.text, "old.yaml").changes.empty());
}

TEST_CASE("update: mixed_precision replaces fp16, and maps in a list are kept") {
  CHECK(update_file("fp16: true\nmixed_precision: bf16\nnum_processes: \"4\"\n"
                    "mpirun_config:\n  mpirun_hostfile: hosts\n") ==
        "mixed_precision: bf16\nnum_processes: 4\nmpirun_config:\n  mpirun_hostfile: hosts\n"
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\n");
  CHECK(contains(update_file("mpirun_config:\n  mpirun_hostfile:\n  mpirun_ccl: 1\n"),
                 "compute_environment"));
  CHECK(contains(
      update_file("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: [1, {a: 'no'}]\n"),
      "fsdp_version: [1, {a: 'no'}]\n"));
}

TEST_CASE("launch file: writing a file creates the folders above it") {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "new" / "folder" / "launch.yaml";
  config::write_launch_file(path.string(), "num_processes: 2\n");
  CHECK(read_file(path) == "num_processes: 2\n");
}

TEST_CASE("update: a JSON file is written as JSON, and misspelt keys are refused") {
  const auto now = config::updated_launch_file(
      "{\"distributed_type\": \"NO\", \"num_processes\": 1, \"downcast_bf16\": false}", "old.json");
  CHECK(contains(now.text, "\"distributed_type\": \"NO\""));
  CHECK(now.changes.size() == 3);  // one key is dropped, and two are added
  for (const char* text : {"num_proceses: 1\n", "fsdp_config: {fsdp_versin: 2}\n"})
    CHECK(test::error_of([&] { update_file(text); }).code == "config.unknown-key");
  CHECK(test::error_of([&] { update_file("compute_environment: AMAZON_SAGEMAKER\n"); }).code ==
        "config.not-supported");
  CHECK(test::error_of([&] { update_file("- 1\n"); }).code == "config.syntax");
  CHECK(test::error_of([&] { update_file("a: &a [*a]\n"); }).exit_code == 2);
  // Values that contain themselves, and a few lines that expand to very many.
  CHECK(test::error_of([&] { update_file("fsdp_config: &a {fsdp_version: *a}\n"); }).code ==
        "config.syntax");
  std::string laughs = "fsdp_config:\n  fsdp_version: &a0 [x, x, x, x, x, x, x, x]\n";
  const std::vector<std::string> keys = {"offload_params", "min_num_params", "state_dict_type",
                                         "use_orig_params", "forward_prefetch"};
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::string item = str("*a", i);
    laughs += str("  fsdp_", keys[i], ": &a", i + 1, " [",
                  join(std::vector<std::string>(8, item), ", "), "]\n");
  }
  CHECK(test::error_of([&] { update_file(laughs); }).code == "config.syntax");
}

TEST_CASE("config command: it writes the named file, and invalid arguments are refused") {
  const config::Environment home = {{"HOME", "/nowhere"}};
  CHECK(command({}, home).path == "/nowhere/.cache/hasten/default_config.yaml");
  CHECK(command({}, home).action == ConfigAction::ask);
  CHECK(command({"default", "--config_file", "a.yaml"}, home).path == "a.yaml");
  CHECK(command({"default", "--mixed-precision=bf16"}, home).options.mixed_precision ==
        Precision::bf16);
  CHECK(command({"default"}, {{"HASTEN_CONFIG_FILE", "b.yaml,c.yaml"}}).path == "b.yaml");
  CHECK(command({"update", "--config_file", "a.yaml"}, home).action == ConfigAction::update);
  CHECK(command({"update", "-h"}, home).help);
  const auto code = [&](const std::vector<std::string>& arguments,
                        const config::Environment& environment) {
    return test::error_of([&] { command(arguments, environment); }).code;
  };
  CHECK(code({"update"}, home) == "config.missing");
  CHECK(code({"default"}, {}) == "config.missing");
  CHECK(code({"defalt"}, home) == "config.unexpected-argument");
  CHECK(code({"default", "x"}, home) == "config.unexpected-argument");
  CHECK(code({"default", "--mixed_precision", "fp17"}, home) == "config.bad-value");
  CHECK(code({"default", "--mixed_precision", "fp8"}, home) == "config.not-supported");
  CHECK(code({"update", "--overwrite"}, home) == "config.unknown-key");
  CHECK(code({"--mixed_precision", "no"}, home) == "config.unknown-key");
  CHECK(code({"--config_fil", "a"}, home) == "config.unknown-key");
  CHECK(code({"--config_file"}, home) == "config.missing-value");
}

}  // namespace accelerate_file_launch_file_test
