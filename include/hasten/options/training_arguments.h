// File: hasten/options/training_arguments.h
// The arguments of a training run: names and defaults of Hugging Face Trainer's TrainingArguments
// (5.23) as far as hasten supports them, and a few of hasten's own.
//
//   TrainingArguments arguments{.output_dir = "out",
//                               .per_device_train_batch_size = 32,
//                               .learning_rate = 2e-5,
//                               .eval_strategy = IntervalStrategy::epoch};
//   arguments = resolved(arguments);        // checks, and fills in derived values
//   const std::int64_t every = absolute_steps(arguments.logging_steps, total_steps);
//
// All other names of the Hugging Face Trainer are known too: flags and files refuse them as not
// supported yet, or ignore them with a notice if they have no meaning outside Python
// (docs/reference/training_arguments.md lists them). A step is an optimizer step, whatever
// gradient_accumulation_steps is. resolved(), validate() and training_arguments_from_json() throw
// ConfigError "config.*". Thread rule: a value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/options/detail/kwargs.h"
#include "hasten/options/detail/names.h"

namespace hasten {

enum class IntervalStrategy { no, steps, epoch };
enum class SaveStrategy { no, steps, epoch, best };
// adamax, lamb, lbfgs, muon, nadam and radam are hasten's own names; the others are those of the
// Hugging Face Trainer.
enum class OptimizerName {
  adamw_torch,
  adamw_torch_fused,
  sgd,
  adafactor,
  adagrad,
  ademamix,
  lion_32bit,
  rmsprop,
  schedule_free_adamw,
  schedule_free_sgd,
  stable_adamw,
  adamax,
  lamb,
  lbfgs,
  muon,
  nadam,
  radam,
  adamw_8bit,
  lion_8bit,
};
enum class SamplingStrategy { random, sequential, group_by_length, batch_rebalance };
enum class CountTokens { no, non_padding, all };
enum class SchedulerType {
  linear,
  cosine,
  cosine_with_restarts,
  polynomial,
  constant,
  constant_with_warmup,
  inverse_sqrt,
  cosine_with_min_lr,
  cosine_warmup_with_min_lr,
  warmup_stable_decay,
  reduce_lr_on_plateau,
  greedy,
};

enum class WeightsType { float32, bfloat16 };

struct TrainingArguments {
  // Actions and output.
  std::string output_dir = "trainer_output";  // Checkpoints, final model, results.
  bool overwrite_output_dir = false;          // hasten's own: start over despite checkpoints.
  // This and the next two are for commands. A Trainer ignores them: a program calls its methods.
  bool do_train = false;
  bool do_eval = false;  // Follows eval_strategy.
  bool do_predict = false;
  std::string resume_from_checkpoint =
      {};  // A checkpoint folder; "true": the newest in output_dir.

  // Duration and batches.
  std::int64_t per_device_train_batch_size = 8;  // Rows.
  std::int64_t per_device_eval_batch_size = 8;   // Rows.
  bool auto_find_batch_size = false;             // Smaller batches if memory runs out.
  double num_train_epochs = 3.0;                 // May be a fraction.
  std::int64_t max_steps = -1;                   // Above 0 it overrides num_train_epochs.
  std::int64_t gradient_accumulation_steps = 1;  // Batches per step.
  bool average_tokens_across_devices = true;     // False is refused with several processes.

  // Learning rate.
  double learning_rate = 5e-5;
  SchedulerType lr_scheduler_type = SchedulerType::linear;
  Kwargs lr_scheduler_kwargs = {};  // Keys by type: docs/reference/training_arguments.md.
  double warmup_steps = 0;          // Steps; below 1: a share of all steps.

  // Optimizer.
  OptimizerName optim = OptimizerName::adamw_torch_fused;
  Kwargs optim_args = {};     // Keys by optimizer: docs/reference/training_arguments.md.
  double weight_decay = 0.0;  // Not for biases, layer norms and RMS norms.
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;           // 0: no clipping.
  double label_smoothing_factor = 0.0;  // 0: none.
  // Noise in the embeddings during training (NEFTune); unset: none.
  std::optional<double> neftune_noise_alpha = {};
  // hasten's own: update each parameter in the backward pass, as soon as its gradient is complete.
  bool step_in_backward = false;
  // hasten's own: keep the optimizer's states in host memory, and step there.
  bool offload_optimizer_states = false;
  // Computes the loss of a language model for some tokens at a time, so that the logits never exist
  // as a whole, and leaves out padding. Unset: true if nothing reads the logits.
  std::optional<bool> use_liger_kernel = {};

  // Precision and device.
  bool bf16 = false;              // bfloat16 autocast; weights and optimizer states stay float32.
  bool fp16 = false;              // float16 autocast with scaled losses; weights stay float32.
  bool bf16_full_eval = false;    // Evaluate under bfloat16 autocast; weights stay float32.
  bool fp16_full_eval = false;    // Evaluate under float16 autocast; weights stay float32.
  std::optional<bool> tf32 = {};  // Products of float32 in TF32; unset: LibTorch's choice.
  // hasten's own: the type of weights and gradients, from the start of the run to its files.
  WeightsType weights_dtype = WeightsType::float32;
  bool use_cpu = false;          // Train on the CPU, even if there is a GPU or a TPU.
  std::int64_t num_threads = 0;  // hasten's own: threads per operation; 0: LibTorch's choice.
  std::optional<std::int64_t> torch_empty_cache_steps = {};  // Steps; no effect on the CPU.
  bool activation_checkpointing = false;        // Recompute layers in the backward pass.
  Kwargs activation_checkpointing_kwargs = {};  // Keys: docs/reference/training_arguments.md.
  bool activation_offloading = false;  // TRL's: activations in host memory; not on the CPU.
  // hasten's own: batches have no padding on any device (hasten/models/pack_rows.h), in evaluations
  // unless something reads outputs of tokens. On the CPU, hasten's models leave out padding without
  // this.
  bool padding_free = false;
  // hasten's own: start all kernels of a step with one call (a CUDA graph). Unset: true where this
  // changes nothing but the time (docs/gpu.md).
  std::optional<bool> cuda_graph = {};
  bool full_determinism = false;  // Use deterministic algorithms only.
  std::int64_t seed = 42;  // Seeds weights, dropout and, without data_seed, the order of rows.
  std::optional<std::int64_t> data_seed = {};  // Unset: seed.

  // Logging.
  IntervalStrategy logging_strategy = IntervalStrategy::steps;
  double logging_steps = 500;          // Steps; below 1: a share of all steps.
  bool logging_first_step = false;     // Also log the first step.
  bool logging_nan_inf_filter = true;  // Leave losses that are not finite out of logged means.
  // hasten's own: throw DivergedError before the optimizer steps with such a loss.
  bool stop_on_nonfinite_loss = false;
  // The tokens that num_input_tokens_seen counts.
  CountTokens include_num_input_tokens_seen = CountTokens::no;
  // The least severe lines that are printed; passive: the level of the process.
  LogLevel log_level = LogLevel::passive;
  std::optional<bool> disable_tqdm = {};          // Unset: a bar if standard error is a terminal.
  std::vector<std::string> report_to = {"none"};  // Trackers by name, or "all".
  std::string logging_dir = {};  // The trackers' folder; unset: hasten/trainer/tracking_callback.h.
  std::string run_name = {};     // The last part of that path, and the run's name in MLflow.
  bool skip_memory_metrics = true;  // If false, report memory with the metrics (docs/trainer.md).
  std::string anatomy = {};         // hasten's own: "text", a file (.json, .html), or empty: none.
  std::int64_t anatomy_steps = 3;   // hasten's own: optimizer steps that it records.

  // Evaluation.
  IntervalStrategy eval_strategy = IntervalStrategy::no;
  std::optional<double> eval_steps =
      {};                      // Steps; below 1: a share of all steps; unset: logging_steps.
  double eval_delay = 0;       // Steps or epochs, by eval_strategy, before the first one.
  bool eval_on_start = false;  // Also evaluate before the first step.
  // Batches of predictions to keep on the device; unset: all.
  std::optional<std::int64_t> eval_accumulation_steps = {};
  bool prediction_loss_only = false;  // Keep no logits; report the loss only.

  // Checkpoints.
  SaveStrategy save_strategy = SaveStrategy::steps;
  double save_steps = 500;                            // Steps; below 1: a share of all steps.
  std::optional<std::int64_t> save_total_limit = {};  // Checkpoints to keep; unset: all.
  // hasten's own: never delete the checkpoints of steps that are multiples of this; 0: none.
  std::int64_t save_keep_every = 0;
  bool save_only_model = false;  // Without optimizer, schedule and random state: not resumable.
  std::optional<bool> async_save =
      {};  // Write checkpoints while training goes on; unset: if it fits.
  // Also save when a signal stops the run. `hasten train` sets it unless save_strategy is no.
  bool enable_jit_checkpoint = false;
  bool load_best_model_at_end = false;     // End the run with the weights of its best checkpoint.
  std::string metric_for_best_model = {};  // With or without "eval_"; see resolved().
  std::optional<bool> greater_is_better = {};  // Unset: true unless the metric ends in "loss".
  bool save_on_each_node = false;     // Each machine's main process writes, not only rank 0.
  bool ignore_data_skip = false;      // Resume at the start of the data, not where the run stopped.
  std::int64_t hash_chain_steps = 0;  // hasten's own: steps between two hashes; 0: none.

  // Data.
  SamplingStrategy train_sampling_strategy = SamplingStrategy::random;
  std::string length_column_name = "length";  // For group_by_length and batch_rebalance.
  bool dataloader_drop_last = false;          // For training batches; evaluation uses every row.
  std::int64_t dataloader_num_workers = 0;    // Background threads; 0: load in the training thread.
  bool dataloader_pin_memory = true;          // Batches for a GPU are in page-locked memory.
  std::optional<std::int64_t> dataloader_prefetch_factor = {};  // Batches per worker.
  std::vector<std::string> label_names = {};                    // One column; unset: labels.

  // Several processes; unset values have the defaults of hasten/prepare/detail/data_parallel.h.
  Kwargs accelerator_config =
      {};  // How batches are shared. Keys: docs/reference/training_arguments.md.
  std::optional<bool> ddp_find_unused_parameters = {};
  std::optional<std::int64_t> ddp_bucket_cap_mb = {};  // MiB.
  std::optional<bool> ddp_broadcast_buffers = {};
  std::optional<bool> ddp_static_graph = {};
  std::int64_t ddp_timeout = 1800;  // Seconds that processes wait for each other.
  // hasten's own: virtual ranks, so that any number of processes that divides it computes the same
  // bits; 0: none.
  std::int64_t elastic_ranks = 0;
};

// Validates the arguments and fills in derived values: do_eval, eval_steps, metric_for_best_model,
// greater_is_better, and a leading "~" of output_dir and logging_dir.
HASTEN_API TrainingArguments resolved(TrainingArguments arguments);

// Throws ConfigError for the first value out of its range, the first contradiction, or the first
// value that is not supported yet.
HASTEN_API void validate(const TrainingArguments& arguments);

// True for the schedules that follow an evaluation metric (hasten/optim/metric_scheduler.h).
HASTEN_API bool follows_metric(SchedulerType type);

// Converts a number of steps: below 1 it is a share of `total`, rounded up. 0.1 of 512 is 52, 500
// is 500.
HASTEN_API std::int64_t absolute_steps(double steps_or_share, std::int64_t total);

// Formats all arguments as a JSON object in the order of the struct, with null for unset ones.
// training_arguments_from_json reads it back; it accepts any subset of the keys, uses defaults for
// the others, and knows former names.
HASTEN_API std::string to_json(const TrainingArguments& arguments);
HASTEN_API TrainingArguments training_arguments_from_json(const std::string& json,
                                                          const std::string& name = "JSON");

namespace config {
class OptionTable;
}
// Adds the description of all arguments to a table (options/describe.h).
HASTEN_API void describe(config::OptionTable& table, TrainingArguments& arguments);

template <>
struct Names<WeightsType> {
  static constexpr std::string_view text[] = {"float32", "bfloat16"};
};
template <>
struct Names<IntervalStrategy> {
  static constexpr std::string_view text[] = {"no", "steps", "epoch"};
};
template <>
struct Names<SaveStrategy> {
  static constexpr std::string_view text[] = {"no", "steps", "epoch", "best"};
};
template <>
struct Names<OptimizerName> {
  static constexpr std::string_view text[] = {"adamw_torch",
                                              "adamw_torch_fused",
                                              "sgd",
                                              "adafactor",
                                              "adagrad",
                                              "ademamix",
                                              "lion_32bit",
                                              "rmsprop",
                                              "schedule_free_adamw",
                                              "schedule_free_sgd",
                                              "stable_adamw",
                                              "adamax",
                                              "lamb",
                                              "lbfgs",
                                              "muon",
                                              "nadam",
                                              "radam",
                                              "adamw_8bit",
                                              "lion_8bit"};
};
template <>
struct Names<SamplingStrategy> {
  static constexpr std::string_view text[] = {"random", "sequential", "group_by_length",
                                              "batch_rebalance"};
};
template <>
struct Names<CountTokens> {
  static constexpr std::string_view text[] = {"no", "non_padding", "all"};
};
template <>
struct Names<SchedulerType> {
  static constexpr std::string_view text[] = {"linear",
                                              "cosine",
                                              "cosine_with_restarts",
                                              "polynomial",
                                              "constant",
                                              "constant_with_warmup",
                                              "inverse_sqrt",
                                              "cosine_with_min_lr",
                                              "cosine_warmup_with_min_lr",
                                              "warmup_stable_decay",
                                              "reduce_lr_on_plateau",
                                              "greedy"};
};

}  // namespace hasten
