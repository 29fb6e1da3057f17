// Arguments of Hugging Face Trainer that a configuration may hold but that have no field here. They
// are refused if ignoring them would change the run. Otherwise they are ignored with a notice.
#include "hasten/base/text.h"
#include "options/training_rules.h"

namespace hasten::config {
namespace {

using ArgumentDescriber = Describer<TrainingArguments>;
using OptionalFlag = std::optional<bool>;
using Texts = std::vector<std::string>;

constexpr std::string_view kTrackers =
    "azure_ml clearml codecarbon comet_ml dagshub dvclive flyte neptune swanlab trackio "
    "wandb "
    "kubeflow";

constexpr const char* kWholeModel =
    "each process holds the whole model; bf16, adafactor and gradient_accumulation_steps save "
    "memory";

void describe_later_names(ArgumentDescriber& d) {
  d.group("Known, not supported yet");
  d.unimplemented<AnyText>(
      "parallelism_config",
      "processes divide the data, and each holds the whole model: start them with hasten launch");
  d.unimplemented<AnyText>("fsdp", kWholeModel);
  d.unimplemented<AnyText>("fsdp_config", "see fsdp");
  d.unimplemented<AnyText>("deepspeed", kWholeModel);
}

void describe_refused_names(ArgumentDescriber& d) {
  d.group("Known, not supported");
  d.refused<AnyText>(
      "optim_target_modules",
      "only GaLore and APOLLO use it; adafactor keeps almost no state of any module");
  d.refused<Texts>("include_for_metrics",
                   "metrics receive predictions and labels; override Trainer::prediction_step to "
                   "compute from the inputs");
  d.refused<AnyText>("debug", "use stop_on_nonfinite_loss to end a run at its first bad loss");
}

void describe_process_names(ArgumentDescriber& d) {
  d.no_effect<bool>("log_on_each_node", "only the main process of the job logs", true);
  d.no_effect<AnyText>("log_level_replica", "only the main process of the job logs", {"warning"});
  d.no_effect<AnyText>("ddp_backend",
                       "CPU tensors use Gloo, GPU tensors use NCCL if it can be loaded");
  d.no_effect<std::int64_t>("local_rank", "the launcher sets it", -1);
}

void describe_python_names(ArgumentDescriber& d) {
  d.no_effect<bool>("torch_compile", "it compiles Python code, and hasten has none");
  d.no_effect<AnyText>("torch_compile_backend", "see torch_compile");
  d.no_effect<AnyText>("torch_compile_mode", "see torch_compile");
  d.no_effect<AnyText>("liger_kernel_config",
                       "hasten's own kernels are always used where they are faster");
  d.no_effect<bool>("use_cache",
                    "training uses no cache of keys and values, and generation always does");
  d.no_effect<bool>("eval_do_concat_batches", "predictions are always one tensor", true);
  d.no_effect<bool>("batch_eval_metrics", "metrics are always computed batch by batch");
  d.no_effect<bool>("restore_callback_states_from_checkpoint",
                    "a resumed run restores every callback that has a name");
  d.no_effect<bool>("eval_use_gather_object", "predictions are tensors, not Python objects");
  d.no_effect<AnyText>("dataloader_multiprocessing_context",
                       "it selects how Python starts worker processes");
  d.no_effect<bool>("dataloader_persistent_workers",
                    "workers are threads, which start within microseconds in each epoch");
  d.no_effect<bool>("remove_unused_columns",
                    "models read the columns that they know from a batch, by name", true);
  d.no_effect<bool>("dataloader_in_order", "batches always come in order", true);
  d.no_effect<bool>("save_safetensors", "weights are always saved as safetensors", true);
}

void describe_hub_names(ArgumentDescriber& d) {
  const std::string hub =
      "nothing is sent to a hub; to publish a model, upload the folder output_dir";
  d.no_effect<bool>("push_to_hub", hub);
  d.no_effect<AnyText>("hub_token", hub);
  d.no_effect<OptionalFlag>("hub_private_repo", hub);
  d.no_effect<AnyText>("hub_model_id", hub);
  d.no_effect<AnyText>("hub_strategy", hub, {"every_save"});
  d.no_effect<bool>("hub_always_push", hub);
  d.no_effect<AnyText>("hub_revision", hub);
  const std::string trackio = "trackio is a Python tracker";
  d.no_effect<AnyText>("project", trackio, {"huggingface"});
  d.no_effect<AnyText>("trackio_space_id", trackio);
  d.no_effect<AnyText>("trackio_bucket_id", trackio);
  d.no_effect<AnyText>("trackio_static_space_id", trackio);
}

}  // namespace

void describe_unsupported_optimizers(Option& optim) {
  optim.unimplemented_choices(
      {"adamw_torch_4bit", "ademamix_8bit", "rmsprop_bnb_8bit"},
      "use adamw_8bit, whose states take 2 bytes a parameter, or adafactor, "
      "which keeps almost none");
  const auto describe_paged = [&](const char* paged, const std::string& instead) {
    optim.refused_choices({paged}, "use " + instead +
                                       " with offload_optimizer_states, which keeps all states in "
                                       "host memory");
  };
  describe_paged("paged_adamw_32bit", "adamw_torch_fused");
  describe_paged("paged_adamw_8bit", "adamw_8bit");
  describe_paged("paged_lion_32bit", "lion_32bit");
  describe_paged("paged_lion_8bit", "lion_8bit");
  describe_paged("paged_ademamix_32bit", "ademamix");
  describe_paged("paged_ademamix_8bit", "ademamix");
  optim.refused_choices(
      {"galore_adamw", "galore_adamw_8bit", "galore_adafactor", "galore_adamw_layerwise",
       "galore_adamw_8bit_layerwise", "galore_adafactor_layerwise", "apollo_adamw",
       "apollo_adamw_layerwise", "lomo", "adalomo"},
      "use adafactor, which keeps almost no state");
  optim.refused_choices({"adamw_anyprecision", "grokadamw", "adamw_torch_npu_fused"},
                        "use adamw_torch_fused");
  optim.refused_choices({"schedule_free_radam"}, "use schedule_free_adamw with warmup_steps");
}
std::vector<std::string> unsupported_trackers() { return split(kTrackers, ' '); }

void describe_known_names(ArgumentDescriber& d) {
  describe_later_names(d);
  describe_refused_names(d);
  d.group("Known, without effect");
  describe_process_names(d);
  describe_python_names(d);
  describe_hub_names(d);
}

}  // namespace hasten::config
