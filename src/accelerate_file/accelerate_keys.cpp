#include "accelerate_file/accelerate_keys.h"

#include <algorithm>

#include "hasten/base/text.h"

namespace hasten::config {
namespace {

// Replaces a former name, which Accelerate's own `config` once wrote too, by the name that its
// launch reads.
std::string current_name(const std::string& section, const std::string& name) {
  if (section == "fp8_config") {
    if (name == "amax_history_length") return "amax_history_len";
    if (name == "amax_compute_algorithm") return "amax_compute_algo";
    if (name == "optimization_level") return "opt_level";
    if (name == "format") return "fp8_format";
  }
  if (section == "fsdp_config" && name == "fsdp_backward_prefetch_policy")
    return "fsdp_backward_prefetch";
  return name;
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<std::string> with_prefix(const std::string& prefix, std::vector<std::string> names) {
  for (std::string& name : names) name.insert(0, prefix);
  return names;
}

std::vector<std::string> fsdp_names() {
  return with_prefix(
      "fsdp_",
      {"version", "sharding_strategy", "reshard_after_forward", "offload_params", "min_num_params",
       "auto_wrap_policy", "transformer_layer_cls_to_wrap", "backward_prefetch", "forward_prefetch",
       "state_dict_type", "use_orig_params", "cpu_ram_efficient_loading", "sync_module_states",
       "activation_checkpointing", "activation_checkpointing_offload"});
}

std::vector<std::string> deepspeed_names() {
  return {"zero_stage",
          "gradient_accumulation_steps",
          "gradient_clipping",
          "offload_optimizer_device",
          "offload_optimizer_nvme_path",
          "offload_param_device",
          "offload_param_nvme_path",
          "zero3_init_flag",
          "zero3_save_16bit_model",
          "deepspeed_config_file",
          "deepspeed_hostfile",
          "deepspeed_exclusion_filter",
          "deepspeed_inclusion_filter",
          "deepspeed_multinode_launcher",
          "deepspeed_moe_layer_cls_names"};
}

std::vector<std::string> megatron_names() {
  return with_prefix("megatron_lm_", {"tp_degree",
                                      "pp_degree",
                                      "num_micro_batches",
                                      "sequence_parallelism",
                                      "recompute_activations",
                                      "recompute_granularity",
                                      "recompute_method",
                                      "recompute_num_layers",
                                      "use_distributed_optimizer",
                                      "gradient_clipping",
                                      "attention_backend",
                                      "attention_dropout",
                                      "attention_softmax_in_fp32",
                                      "calculate_per_token_loss",
                                      "context_parallel_size",
                                      "decoder_last_pipeline_num_layers",
                                      "eod_mask_loss",
                                      "expert_model_parallel_size",
                                      "expert_tensor_parallel_size",
                                      "hidden_dropout",
                                      "no_load_optim",
                                      "no_save_optim",
                                      "optimizer_cpu_offload",
                                      "overlap_cpu_optimizer_d2h_h2d",
                                      "use_custom_fsdp",
                                      "use_precision_aware_optimizer",
                                      "use_rotary_position_embeddings"});
}

std::vector<std::string> parallelism_names() {
  return with_prefix("parallelism_config_",
                     {"dp_replicate_size", "dp_shard_size", "tp_size", "cp_size", "cp_backend",
                      "cp_comm_strategy", "sp_size", "sp_backend", "sp_seq_length",
                      "sp_seq_length_is_variable", "sp_attn_implementation"});
}

}  // namespace

std::string Section::full_name(const std::string& key) const {
  const std::string name = current_name(this->name, key);
  if (has(names, name)) return name;
  if (!prefix_may_be_missing) return "";
  const std::string longer = current_name(this->name, prefix + key);
  if (has(names, longer)) return longer;
  // One name of fp8_config has the prefix; the others may be written with it.
  if (!starts_with(key, prefix)) return "";
  const std::string shorter = current_name(this->name, key.substr(prefix.size()));
  return has(names, shorter) ? shorter : "";
}

const std::vector<Section>& sections() {
  static const std::vector<Section> all = {
      {"fsdp_config", "fsdp_", true, fsdp_names(), "FSDP", "distributed_type is not FSDP"},
      {"deepspeed_config", "deepspeed_", false, deepspeed_names(), "DEEPSPEED",
       "distributed_type is not DEEPSPEED"},
      {"megatron_lm_config", "megatron_lm_", false, megatron_names(), "MEGATRON_LM",
       "distributed_type is not MEGATRON_LM"},
      {"fp8_config",
       "fp8_",
       true,
       {"backend", "margin", "interval", "fp8_format", "amax_history_len", "amax_compute_algo",
        "opt_level", "override_linear_precision", "use_autocast_during_eval", "pad_inner_dim",
        "enable_fsdp_float8_all_gather"},
       "",
       "mixed_precision is not fp8"},
      {"parallelism_config", "parallelism_config_", false, parallelism_names(), "",
       "every size is 1"},
      {"dynamo_config", "dynamo_", true,
       with_prefix("dynamo_",
                   {"backend", "mode", "use_fullgraph", "use_dynamic", "use_regional_compilation"}),
       "", "programs are compiled before they run"},
      {"mpirun_config",
       "mpirun_",
       false,
       {"mpirun_hostfile", "mpirun_ccl"},
       "",
       "hasten launch does not start mpirun"},
      {"ipex_config", "", false, {"ipex", "use_xpu"}, "", "LibTorch contains what it added"},
  };
  return all;
}

const Section* find_section(const std::string& name) {
  for (const Section& section : sections()) {
    if (section.name == name) return &section;
  }
  return nullptr;
}

const Section* find_section_with_key(const std::string& key) {
  for (const Section& section : sections()) {
    if (has(section.names, key)) return &section;
  }
  return nullptr;
}

const std::vector<KeyGroup>& key_groups() {
  static const std::vector<KeyGroup> all = {
      {kTpuReason,
       {"tpu_name", "tpu_zone", "tpu_vm", "tpu_use_cluster", "tpu_use_sudo", "commands",
        "command_file"}},
      {"only used by SageMaker",
       {"ec2_instance_type", "iam_role_name", "image_uri", "profile", "region", "base_job_name",
        "pytorch_version", "transformers_version", "py_version", "sagemaker_inputs_file",
        "sagemaker_metrics_file", "additional_args"}},
      {"only used by Python programs", {"main_training_function", "dynamo_backend", "use_xpu"}},
  };
  return all;
}

const KeyGroup* find_group(const std::string& key) {
  for (const KeyGroup& group : key_groups()) {
    if (has(group.names, key)) return &group;
  }
  return nullptr;
}

bool is_tpu_type(const std::string& distributed_type) {
  return distributed_type == "XLA" || lower(distributed_type) == "tpu";
}

std::vector<std::string> accelerate_keys() {
  std::vector<std::string> all = {"compute_environment", "fp16"};
  for (const Section& section : sections()) all.push_back(section.name);
  for (const KeyGroup& group : key_groups())
    all.insert(all.end(), group.names.begin(), group.names.end());
  return all;
}

}  // namespace hasten::config
