// Reads valid and invalid configuration files of Accelerate, and checks the values, the notices,
// and the errors with line, key and nearest name.
#include <algorithm>

#include "hasten/options/launch_options.h"
#include "unit/options/support.h"

namespace accelerate_file_accelerate_files_test {

using namespace hasten;
using test::contains;

namespace {

LaunchConfiguration parse_files(const std::vector<std::string>& files,
                                const config::Environment& environment = {}) {
  std::vector<std::string> arguments;
  for (const std::string& file : files) {
    arguments.push_back("--config_file");
    arguments.push_back(file);
  }
  if (files.size() > 1) arguments = {"--config_file", files[0] + "," + files[1]};
  arguments.push_back("program");
  return parse_launch(arguments, environment);
}

struct InvalidFile {
  std::string text, code, where, what, hint;  // where: the text after the file's name
  std::string name = "launch.yaml";
};

struct ValidFile {
  std::string text;
  std::vector<std::string> notices;  // a part of each notice, in order
  std::string name = "launch.yaml";
};

}  // namespace

TEST_CASE("accelerate files: an error has its line, its key and the nearest name") {
  const std::string unknown = "config.unknown-key", bad = "config.bad-value",
                    later = "config.not-supported", syntax = "config.syntax",
                    twice = "config.duplicate-key";
  const std::vector<InvalidFile> table = {
      // Names at the top level.
      {"num_proceses: 2\n", unknown, ":1", "num_proceses", "num_processes"},
      {"debug: false\nfsdp_confg: {}\n", unknown, ":2", "fsdp_confg", "fsdp_config"},
      {"deepspeed_confg: {}\n", unknown, ":1", "deepspeed_confg", "deepspeed_config"},
      {"paralellism_config: {}\n", unknown, ":1", "paralellism_config", "parallelism_config"},
      {"\n\nec2_instance_typ: p3\n", unknown, ":3", "ec2_instance_typ", "ec2_instance_type"},
      {"compute_enviroment: LOCAL_MACHINE\n", unknown, ":1", "compute_enviroment",
       "compute_environment"},
      {"main_training_funktion: main\n", unknown, ":1", "main_training_funktion",
       "main_training_function"},
      {"tpu_nam: x\n", unknown, ":1", "tpu_nam", "tpu_name"},
      {"dynamo_backnd: x\n", unknown, ":1", "dynamo_backnd", "dynamo_backend"},
      {"mixed_precison: fp16\n", unknown, ":1", "mixed_precison", "mixed_precision"},
      {"distributed_typ: NO\n", unknown, ":1", "distributed_typ", "distributed_type"},
      {"enable_cpu_afinity: true\n", unknown, ":1", "enable_cpu_afinity", "enable_cpu_affinity"},
      {"quite_another: 1\n", unknown, ":1", "quite_another", "--help"},
      // Names that belong in a section.
      {"debug: false\nzero_stage: 2\n", unknown, ":2", "zero_stage", "deepspeed_config"},
      {"fsdp_version: 2\n", unknown, ":1", "fsdp_version", "fsdp_config"},
      {"amax_history_len: 1\n", unknown, ":1", "amax_history_len", "fp8_config"},
      {"megatron_lm_tp_degree: 2\n", unknown, ":1", "megatron_lm_tp_degree", "megatron_lm_config"},
      {"parallelism_config_tp_size: 2\n", unknown, ":1", "parallelism_config_tp_size",
       "parallelism_config"},
      {"dynamo_mode: default\n", unknown, ":1", "dynamo_mode", "dynamo_config"},
      // Names inside sections.
      {"fsdp_config:\n  fsdp_version: 2\n  fsdp_offload_parms: true\n", unknown, ":3",
       "fsdp_offload_parms in fsdp_config", "fsdp_offload_params"},
      {"fsdp_config:\n  offload_parms: true\n", unknown, ":2", "offload_parms",
       "fsdp_offload_params"},
      {"fsdp_config:\n  zero_stage: 1\n", unknown, ":2", "zero_stage",
       "it belongs in deepspeed_config"},
      {"fsdp_config: {something: 1}\n", unknown, ":1", "something", "the keys of fsdp_config are"},
      {"deepspeed_config:\n  zero_stag: 2\n", unknown, ":2", "zero_stag", "zero_stage"},
      {"deepspeed_config:\n  zero_stage: 2\n\n  gradient_cliping: 1.0\n", unknown, ":4",
       "gradient_cliping", "gradient_clipping"},
      {"deepspeed_config: {hostfile: x}\n", unknown, ":1", "hostfile", "deepspeed_hostfile"},
      {"megatron_lm_config:\n  megatron_lm_tp_degre: 2\n", unknown, ":2", "megatron_lm_tp_degre",
       "megatron_lm_tp_degree"},
      {"megatron_lm_config:\n  pp_degree: 2\n", unknown, ":2", "pp_degree",
       "megatron_lm_pp_degree"},
      {"fp8_config:\n  backnd: TE\n", unknown, ":2", "backnd", "backend"},
      {"fp8_config:\n  amax_histroy_len: 3\n", unknown, ":2", "amax_histroy_len",
       "amax_history_len"},
      {"parallelism_config:\n  tp_size: 1\n", unknown, ":2", "tp_size",
       "parallelism_config_tp_size"},
      {"parallelism_config:\n  parallelism_config_tp_sise: 1\n", unknown, ":2",
       "parallelism_config_tp_sise", "parallelism_config_tp_size"},
      {"dynamo_config:\n  dynamo_backend: INDUCTOR\n  dynamo_mod: x\n", unknown, ":3", "dynamo_mod",
       "dynamo_mode"},
      {"mpirun_config:\n  mpirun_hostfil: h\n", unknown, ":2", "mpirun_hostfil", "mpirun_hostfile"},
      {"ipex_config:\n  ipx: true\n", unknown, ":2", "ipx", "ipex"},
      {"{\n\"debug\": false,\n\"fsdp_config\": {\n\"fsdp_versin\": 2}}", unknown, ":4",
       "fsdp_versin", "fsdp_version", "launch.json"},
      {"{\"zero_stage\": 2}", unknown, ":1", "zero_stage", "deepspeed_config", "launch.json"},
      {"{\"fp8_config\": {\n\"margn\": 0}}", unknown, ":2", "margn", "margin", "launch.json"},
      // Values.
      {"fsdp_config: 3\n", bad, ":1", "fsdp_config", "", "launch.yaml"},
      {"debug: false\ndeepspeed_config: zero\n", bad, ":2", "deepspeed_config", ""},
      {"dynamo_config: [a, b]\n", bad, ":1", "dynamo_config", ""},
      {"fp16: maybe\n", bad, ":1", "fp16", ""},
      {"compute_environment: MOON\n", bad, ":1", "compute_environment", ""},
      {"mixed_precision: fp17\n", bad, ":1", "mixed_precision", "fp16"},
      {"distributed_type: MULTI_GPUS\n", bad, ":1", "distributed_type", "MULTI_GPU"},
      {"parallelism_config:\n  parallelism_config_tp_size: two\n", bad, ":2",
       "parallelism_config_tp_size", ""},
      {"parallelism_config:\n  parallelism_config_cp_size: 0\n", bad, ":2",
       "parallelism_config_cp_size", ""},
      {"{\"parallelism_config\": {\n\n\"parallelism_config_cp_size\": 1.5}}", bad, ":3",
       "parallelism_config_cp_size", "", "launch.json"},
      // Engines that hasten does not have.
      {"distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n", later, ":1", "FSDP",
       "MULTI_CPU"},
      {"debug: false\ndistributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 2}\n", later,
       ":2", "DEEPSPEED", "MULTI_CPU"},
      {"distributed_type: MEGATRON_LM\n", later, ":1", "MEGATRON_LM", "MULTI_CPU"},
      {"distributed_type: XLA\ntpu_use_cluster: true\n", later, ":2", "tpu_use_cluster",
       "each machine"},
      {"distributed_type: TPU\ntpu_vm: [a]\n", later, ":2", "tpu_vm", "each machine"},
      {"distributed_type: XLA\nuse_cpu: true\n", "config.contradiction", ":1",
       "distributed_type XLA", "remove one"},
      {"distributed_type: XLA\ngpu_ids: 0,1\n", "config.contradiction", ":2", "gpu_ids",
       "TPU_VISIBLE_DEVICES"},
      {"distributed_type: XLA\ndowncast_bf16: 'yes'\n", "config.contradiction", ":2",
       "downcast_bf16", "bf16"},
      {"distributed_type: XLA\ntpu_env: [A=1, B]\n", bad, ":2", "tpu_env", ""},
      {"distributed_type: MULTI_XPU\n", later, ":1", "MULTI_XPU", "MULTI_GPU"},
      {"mixed_precision: fp8\nfp8_config: {backend: TE}\n", later, ":1", "fp8", "bf16"},
      {"parallelism_config:\n  parallelism_config_dp_replicate_size: 1\n"
       "  parallelism_config_tp_size: 2\n",
       later, ":3", "parallelism_config_tp_size 2", "the whole model"},
      {"mpirun_config:\n  mpirun_hostfile: ~/hosts\n", later, ":2", "mpirun_hostfile", "mpirun"},
      {"compute_environment: AMAZON_SAGEMAKER\nec2_instance_type: p3\n", later, ":1",
       "AMAZON_SAGEMAKER", "this machine"},
      {"{\"distributed_type\": \"FSDP\"}", later, ":1", "FSDP", "", "launch.json"},
      // Texts that are not a configuration file.
      {"fsdp_config:\n  fsdp_version: 1\n  fsdp_version: 2\n", twice, ":3", "fsdp_version", ":2"},
      {"{\"fsdp_config\": {\"fsdp_version\": 1, \"fsdp_version\": 2}}", twice, "", "fsdp_version",
       "", "launch.json"},
      {"debug: true\ndebug: false\n", twice, ":2", "debug", ":1"},
      {"- a\n- b\n", syntax, "", "launch.yaml", ""},
      {"fsdp_config: {\n", syntax, ":", "launch.yaml", ""},
      {"{\"debug\": }", syntax, ":1", "JSON", "", "launch.json"},
  };
  for (const InvalidFile& wrong : table) {
    CAPTURE(wrong.text);
    const test::TemporaryFile file(wrong.name, wrong.text);
    std::string hint;
    const test::CaughtError caught = test::error_of([&] {
      try {
        parse_files({file.path()});
      } catch (const ConfigError& error) {
        hint = error.hint();
        throw;
      }
    });
    CAPTURE(caught.text);
    CHECK(caught.code == wrong.code);
    CHECK(caught.exit_code == 2);
    CHECK(contains(caught.text, wrong.name + wrong.where));
    CHECK(contains(caught.text, wrong.what));
    CHECK(contains(hint, wrong.hint));
  }
  MESSAGE("invalid files: ", table.size());
  CHECK(table.size() >= 60);
}

TEST_CASE("accelerate files: values without effect are reported in one line per section") {
  const std::vector<ValidFile> table = {
      {"", {}},
      {"compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\nmixed_precision: 'no'\n", {}},
      {"compute_environment: LOCAL_MACHINE\nmain_training_function: main\ndowncast_bf16: 'no'\n"
       "tpu_env: []\ntpu_use_cluster: false\ntpu_use_sudo: false\ncommands: null\n",
       {}},
      {"fsdp_config: {}\n", {":1: fsdp_config is ignored: it is empty"}},
      {"debug: false\ndeepspeed_config: {}\nfsdp_config: {}\nmegatron_lm_config: null\n",
       {"fsdp_config, deepspeed_config, megatron_lm_config are ignored: they are empty"}},
      {"distributed_type: MULTI_CPU\nfsdp_config:\n  fsdp_version: 2\n  fsdp_offload_params: "
       "false\n",
       {":2: fsdp_config (fsdp_offload_params, fsdp_version) is ignored: distributed_type is not "
        "FSDP"}},
      {"fsdp_config: {version: 2, sharding_strategy: 1}\n", {"fsdp_config (sharding_strategy"}},
      {"deepspeed_config: {zero_stage: 2, gradient_accumulation_steps: 4}\n",
       {"distributed_type is not DEEPSPEED"}},
      {"megatron_lm_config: {megatron_lm_tp_degree: 2}\n", {"distributed_type is not MEGATRON_LM"}},
      {"fp8_config: {backend: TE, amax_history_length: 3, fp8_margin: 0, format: E4M3,\n"
       "  override_linear_precision: [false, false, false]}\n",
       {"mixed_precision is not fp8"}},
      {"fp8_config: {amax_compute_algorithm: max, optimization_level: O2}\n", {"fp8_config ("}},
      {"parallelism_config: {parallelism_config_tp_size: 1, parallelism_config_cp_size: 1}\n",
       {"every size is 1"}},
      {"parallelism_config: {parallelism_config_tp_size: null}\n",
       {"parallelism_config is ignored: it is empty"}},
      {"dynamo_config: {dynamo_backend: INDUCTOR, dynamo_mode: default}\n",
       {"dynamo_config (dynamo_backend, dynamo_mode) is ignored: programs are compiled before"}},
      {"dynamo_config: {backend: INDUCTOR}\n", {"dynamo_config (backend)"}},
      {"mpirun_config: {mpirun_ccl: '1'}\n", {"hasten launch does not start mpirun"}},
      {"mpirun_config: {mpirun_hostfile: null}\n", {"mpirun_config is ignored: it is empty"}},
      {"ipex_config: {ipex: false, use_xpu: false}\n", {"ipex_config (ipex, use_xpu)"}},
      {"tpu_name: a\ntpu_zone: b\n", {":1: tpu_name, tpu_zone are ignored: only used on TPUs"}},
      {"tpu_use_cluster: true\ntpu_vm: [a]\n",
       {"tpu_vm, tpu_use_cluster are ignored: only used on TPUs"}},
      {"downcast_bf16: 'yes'\ntpu_env: ['A=1']\n",
       {":1: downcast_bf16 is ignored: only used on TPUs",
        ":2: tpu_env is ignored: only used on TPUs"}},
      {"distributed_type: XLA\ntpu_name: a\ntpu_zone: b\ncommands: [x]\ntpu_vm: ['']\n"
       "tpu_env: ['']\ntpu_use_cluster: false\ntpu_use_sudo: true\ndowncast_bf16: 'no'\n"
       "main_training_function: main\n",
       {":8: tpu_use_sudo is ignored"}},
      {"region: us-east-1\nprofile: x\n", {"profile, region are ignored: only used by SageMaker"}},
      {"main_training_function: train\n",
       {"main_training_function is ignored: only used by Python programs"}},
      {"fp16: true\n", {":1: fp16 is read as mixed_precision: fp16"}},
      {"fp16: false\n", {}},
      {"fp16: true\nmixed_precision: bf16\n", {}},
      {"{\"dynamo_config\": {\"dynamo_backend\": \"NO\"}, \"num_processes\": 2}",
       {"launch.json:1: dynamo_config (dynamo_backend)"},
       "launch.json"},
  };
  for (const ValidFile& right : table) {
    CAPTURE(right.text);
    const test::TemporaryFile file(right.name, right.text);
    const LaunchConfiguration run = parse_files({file.path()});
    CAPTURE(run.notices);
    REQUIRE(run.notices.size() == right.notices.size());
    for (std::size_t i = 0; i < right.notices.size(); ++i)
      CHECK(contains(run.notices[i], right.notices[i]));
  }
}

TEST_CASE("accelerate files: the key fp16 of the first versions sets mixed_precision") {
  const test::TemporaryFile old("launch.yaml", "fp16: true\n"),
      both("launch.yaml", "fp16: true\nmixed_precision: bf16\n"),
      other_order("launch.yaml", "mixed_precision: bf16\nfp16: true\n");
  CHECK(parse_files({old.path()}).options.mixed_precision == Precision::fp16);
  CHECK(parse_files({other_order.path()}).options.mixed_precision == Precision::bf16);
  CHECK(parse_files({both.path()}).options.mixed_precision == Precision::bf16);
}

TEST_CASE("accelerate files: if several files have a section, the last one counts") {
  const test::TemporaryFile parallel(
      "a.yaml", "parallelism_config: {parallelism_config_tp_size: 2}\nnum_processes: 3\n"),
      plain("b.yaml", "parallelism_config: {parallelism_config_tp_size: 1}\n");
  CHECK(parse_files({parallel.path(), plain.path()}).options.num_processes == 3);
  CHECK(test::error_of([&] {
          parse_files({plain.path(), parallel.path()});
        }).code == "config.not-supported");
}

}  // namespace accelerate_file_accelerate_files_test
