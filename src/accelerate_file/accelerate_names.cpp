#include "accelerate_file/accelerate_names.h"

#include <algorithm>

#include "hasten/base/text.h"

namespace hasten::config {
namespace {

// A former name, which earlier versions of Accelerate's own `config` wrote, and the name that its
// launch reads.
struct RenamedKey {
  std::string_view section, former, current;
};
constexpr RenamedKey kRenamedKeys[] = {
    {"fp8_config", "amax_history_length", "amax_history_len"},
    {"fp8_config", "amax_compute_algorithm", "amax_compute_algo"},
    {"fp8_config", "optimization_level", "opt_level"},
    {"fp8_config", "format", "fp8_format"},
    {"fsdp_config", "fsdp_backward_prefetch_policy", "fsdp_backward_prefetch"},
};

// The fields of a Section. `names` is one text with the names as words.
struct SectionData {
  const char* name;
  const char* prefix;
  bool prefix_may_be_missing = false;
  bool names_omit_prefix = false;  // `names` omits the prefix in every name
  const char* names;
  const char* engine = "";
  const char* reason;
};
constexpr SectionData kSections[] = {
    {.name = "fsdp_config",
     .prefix = "fsdp_",
     .prefix_may_be_missing = true,
     .names_omit_prefix = true,
     .names = "version sharding_strategy reshard_after_forward offload_params min_num_params "
              "auto_wrap_policy transformer_layer_cls_to_wrap backward_prefetch "
              "forward_prefetch state_dict_type use_orig_params cpu_ram_efficient_loading "
              "sync_module_states activation_checkpointing activation_checkpointing_offload",
     .engine = "FSDP",
     .reason = "distributed_type is not FSDP"},
    {.name = "deepspeed_config",
     .prefix = "deepspeed_",
     .names = "zero_stage gradient_accumulation_steps gradient_clipping "
              "offload_optimizer_device offload_optimizer_nvme_path offload_param_device "
              "offload_param_nvme_path zero3_init_flag zero3_save_16bit_model "
              "deepspeed_config_file deepspeed_hostfile deepspeed_exclusion_filter "
              "deepspeed_inclusion_filter deepspeed_multinode_launcher "
              "deepspeed_moe_layer_cls_names",
     .engine = "DEEPSPEED",
     .reason = "distributed_type is not DEEPSPEED"},
    {.name = "megatron_lm_config",
     .prefix = "megatron_lm_",
     .names_omit_prefix = true,
     .names = "tp_degree pp_degree num_micro_batches sequence_parallelism "
              "recompute_activations recompute_granularity recompute_method "
              "recompute_num_layers use_distributed_optimizer gradient_clipping "
              "attention_backend attention_dropout attention_softmax_in_fp32 "
              "calculate_per_token_loss context_parallel_size decoder_last_pipeline_num_layers "
              "eod_mask_loss expert_model_parallel_size expert_tensor_parallel_size "
              "hidden_dropout no_load_optim no_save_optim optimizer_cpu_offload "
              "overlap_cpu_optimizer_d2h_h2d use_custom_fsdp use_precision_aware_optimizer "
              "use_rotary_position_embeddings",
     .engine = "MEGATRON_LM",
     .reason = "distributed_type is not MEGATRON_LM"},
    {.name = "fp8_config",
     .prefix = "fp8_",
     .prefix_may_be_missing = true,
     .names = "backend margin interval fp8_format amax_history_len amax_compute_algo opt_level "
              "override_linear_precision use_autocast_during_eval pad_inner_dim "
              "enable_fsdp_float8_all_gather",
     .reason = "mixed_precision is not fp8"},
    {.name = "parallelism_config",
     .prefix = "parallelism_config_",
     .names_omit_prefix = true,
     .names = "dp_replicate_size dp_shard_size tp_size cp_size cp_backend cp_comm_strategy "
              "sp_size sp_backend sp_seq_length sp_seq_length_is_variable "
              "sp_attn_implementation",
     .reason = "every size is 1"},
    {.name = "dynamo_config",
     .prefix = "dynamo_",
     .prefix_may_be_missing = true,
     .names_omit_prefix = true,
     .names = "backend mode use_fullgraph use_dynamic use_regional_compilation",
     .reason = "programs are compiled before they run"},
    {.name = "mpirun_config",
     .prefix = "mpirun_",
     .names = "mpirun_hostfile mpirun_ccl",
     .reason = "hasten launch does not start mpirun"},
    {.name = "ipex_config",
     .prefix = "",
     .names = "ipex use_xpu",
     .reason = "LibTorch contains what it added"},
};

struct GroupData {
  const char* reason;
  const char* names;
};
constexpr GroupData kGroups[] = {
    {kTpuReason, "tpu_name tpu_zone tpu_vm tpu_use_cluster tpu_use_sudo commands command_file"},
    {"only used by SageMaker",
     "ec2_instance_type iam_role_name image_uri profile region base_job_name pytorch_version "
     "transformers_version py_version sagemaker_inputs_file sagemaker_metrics_file "
     "additional_args"},
    {"only used by Python programs", "main_training_function dynamo_backend use_xpu"},
};

std::string current_name(const std::string& section, const std::string& name) {
  for (const RenamedKey& each : kRenamedKeys) {
    if (each.section == section && each.former == name) return std::string(each.current);
  }
  return name;
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Section section_of(const SectionData& data) {
  std::vector<std::string> names = split(data.names, ' ');
  for (std::string& name : names) {
    if (data.names_omit_prefix) name.insert(0, data.prefix);
  }
  return {data.name, data.prefix, data.prefix_may_be_missing, names, data.engine, data.reason};
}

// Returns the first of `all` for which `fits` holds, or null if there is none.
template <class Each, class Fits>
const Each* find_in(const std::vector<Each>& all, Fits fits) {
  const auto found = std::find_if(all.begin(), all.end(), fits);
  return found == all.end() ? nullptr : &*found;
}

}  // namespace

std::string Section::full_name(const std::string& key) const {
  const std::string name = current_name(this->name, key);
  if (has(names, name)) return name;
  if (!prefix_may_be_missing) return "";
  const std::string longer = current_name(this->name, prefix + key);
  if (has(names, longer)) return longer;
  // One name of fp8_config has the prefix; the other names may also be written with it.
  if (!starts_with(key, prefix)) return "";
  const std::string shorter = current_name(this->name, key.substr(prefix.size()));
  return has(names, shorter) ? shorter : "";
}

const std::vector<Section>& sections() {
  static const std::vector<Section> all = [] {
    std::vector<Section> made;
    for (const SectionData& data : kSections) made.push_back(section_of(data));
    return made;
  }();
  return all;
}

const std::vector<KeyGroup>& key_groups() {
  static const std::vector<KeyGroup> all = [] {
    std::vector<KeyGroup> made;
    for (const GroupData& data : kGroups) made.push_back({data.reason, split(data.names, ' ')});
    return made;
  }();
  return all;
}

const Section* find_section(const std::string& name) {
  return find_in(sections(), [&](const Section& section) { return section.name == name; });
}

const Section* find_section_with_key(const std::string& key) {
  return find_in(sections(), [&](const Section& section) { return has(section.names, key); });
}

const KeyGroup* find_group(const std::string& key) {
  return find_in(key_groups(), [&](const KeyGroup& group) { return has(group.names, key); });
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
