// File: hasten/config/training_arguments.h
// What a training run is asked to do: the names and defaults of the Transformers Trainer's
// arguments (5.23), as far as this release does them, and a few of hasten's own.
//
//   TrainingArguments arguments{.output_dir = "out", .per_device_train_batch_size = 32,
//   .learning_rate = 2e-5,
//                               .eval_strategy = IntervalStrategy::epoch};
//   arguments = resolved(arguments);                    // checks, and fills in what follows from
//   other values const auto every = absolute_steps(arguments.logging_steps, total_steps);
//
// Every other name of the peer is known too: in flags and files it is refused as not supported yet,
// or ignored with a notice where it has no meaning outside Python.
// docs/reference/training_arguments.md lists all of them. A step is an optimizer step, whatever
// gradient_accumulation_steps is. Thread rule: a value. resolved(), validate() and from_json throw
// ConfigError.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hasten/config/kwargs.h"
#include "hasten/config/names.h"

namespace hasten {

enum class IntervalStrategy { no, steps, epoch };
enum class SaveStrategy { no, steps, epoch, best };
enum class OptimizerName { adamw_torch, adamw_torch_fused, sgd };
enum class SamplingStrategy { random, sequential };
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
};

struct TrainingArguments {
  // What to do
  std::string output_dir = "trainer_output";  // checkpoints, final model, results
  bool overwrite_output_dir = false;  // hasten's own: start anew where checkpoints lie already
  bool do_train = false;  // the three are for commands; Trainer does what it is called for
  bool do_eval = false;   // follows eval_strategy
  bool do_predict = false;
  std::string resume_from_checkpoint;  // a checkpoint folder; "true" = the newest in output_dir

  // Duration and batches
  std::int64_t per_device_train_batch_size = 8;  // rows
  std::int64_t per_device_eval_batch_size = 8;   // rows
  double num_train_epochs = 3.0;                 // may be a fraction
  std::int64_t max_steps = -1;                   // steps; above 0 it wins over num_train_epochs
  std::int64_t gradient_accumulation_steps = 1;  // batches a step
  bool average_tokens_across_devices = true;     // false is refused with several processes

  // Learning rate
  double learning_rate = 5e-5;
  SchedulerType lr_scheduler_type = SchedulerType::linear;
  Kwargs lr_scheduler_kwargs;  // what each type takes: docs/reference/training_arguments.md
  double warmup_steps = 0;     // steps; below 1 a share of all steps

  // Optimizer
  OptimizerName optim = OptimizerName::adamw_torch_fused;
  Kwargs optim_args;          // sgd: momentum, dampening, nesterov
  double weight_decay = 0.0;  // not on biases, layer norms and RMS norms
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;           // 0 = no clipping
  double label_smoothing_factor = 0.0;  // 0 = none

  // Precision and device
  bool bf16 = false;            // bfloat16 autocast; weights and optimizer state stay float32
  bool fp16 = false;            // refused: there is no gradient scaler yet
  bool bf16_full_eval = false;  // evaluate in bfloat16; weights stay float32
  bool fp16_full_eval = false;  // refused as fp16 is
  bool use_cpu = false;
  std::int64_t num_threads = 0;  // hasten's own: threads of an operation; 0 = as LibTorch picks
  std::optional<std::int64_t> torch_empty_cache_steps;  // steps; for accelerators
  bool full_determinism = false;
  std::int64_t seed = 42;
  std::optional<std::int64_t> data_seed;  // unset = seed

  // Logging
  IntervalStrategy logging_strategy = IntervalStrategy::steps;
  double logging_steps = 500;  // steps; below 1 a share of all steps
  bool logging_first_step = false;
  bool logging_nan_inf_filter = true;
  bool stop_on_nonfinite_loss = false;  // hasten's own: DivergedError instead of training on
  CountTokens include_num_input_tokens_seen = CountTokens::no;
  LogLevel log_level = LogLevel::passive;
  std::optional<bool> disable_tqdm;  // unset: a bar where standard error is a terminal
  std::vector<std::string> report_to = {"none"};
  std::string run_name;  // kept in training_args.json; there is no tracker to show it
  bool skip_memory_metrics = true;
  std::string anatomy;             // hasten's own: "text", or a file (.json, .html); empty: none
  std::int64_t anatomy_steps = 3;  // hasten's own: optimizer steps it looks at

  // Evaluation
  IntervalStrategy eval_strategy = IntervalStrategy::no;
  std::optional<double> eval_steps;  // steps; below 1 a share of all steps; unset = logging_steps
  double eval_delay = 0;  // steps or epochs, as eval_strategy counts, before the first evaluation
  bool eval_on_start = false;
  std::optional<std::int64_t> eval_accumulation_steps;  // batches of predictions on the device
  bool prediction_loss_only = false;

  // Checkpoints
  SaveStrategy save_strategy = SaveStrategy::steps;
  double save_steps = 500;                       // steps; below 1 a share of all steps
  std::optional<std::int64_t> save_total_limit;  // checkpoints kept; unset = all
  bool save_only_model = false;  // no optimizer, schedule and randomness: smaller, not resumable
  bool load_best_model_at_end = false;
  std::string metric_for_best_model;      // with or without "eval_"; see resolved()
  std::optional<bool> greater_is_better;  // unset: unless the metric ends in "loss"
  bool save_on_each_node = false;  // each machine's main process writes; else the job's alone
  bool ignore_data_skip = false;   // resume at the start of the data instead of where the run stood

  // Data
  SamplingStrategy train_sampling_strategy = SamplingStrategy::random;
  bool dataloader_drop_last = false;        // of training batches; every row is evaluated
  std::int64_t dataloader_num_workers = 0;  // background workers; 0 = load in the training thread
  bool dataloader_pin_memory = true;
  std::optional<std::int64_t> dataloader_prefetch_factor;  // batches a worker
  std::vector<std::string> label_names;                    // one column; unset = labels

  // Several processes; unset as hasten/prepare/data_parallel.h has them
  std::optional<bool> ddp_find_unused_parameters;
  std::optional<std::int64_t> ddp_bucket_cap_mb;  // MiB
  std::optional<bool> ddp_broadcast_buffers;
  std::optional<bool> ddp_static_graph;
  std::int64_t ddp_timeout = 1800;  // seconds that processes wait for one another
};

// The arguments with all that follows from others filled in: do_eval, eval_steps,
// metric_for_best_model, greater_is_better, a leading "~" of output_dir. Checks first, as
// validate() does.
TrainingArguments resolved(TrainingArguments arguments);

// Throws ConfigError for the first value out of its range, the first contradiction, and what is not
// supported yet.
void validate(const TrainingArguments& arguments);

// Steps from a value that below 1 is a share of `total` (rounded up): 0.1 of 512 is 52, 500 is 500.
std::int64_t absolute_steps(double steps_or_share, std::int64_t total);

// All arguments as a JSON object, in the order of the struct; unset is null. What reads it back is
// from_json, which takes any part of it, leaves the rest at the defaults, and knows former names.
std::string to_json(const TrainingArguments& arguments);
TrainingArguments training_arguments_from_json(const std::string& json,
                                               const std::string& name = "JSON");

namespace config {
class OptionTable;
}
// Adds the description of every argument to a table (config/describe.h).
void describe(config::OptionTable& table, TrainingArguments& arguments);

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
  static constexpr std::string_view text[] = {"adamw_torch", "adamw_torch_fused", "sgd"};
};
template <>
struct Names<SamplingStrategy> {
  static constexpr std::string_view text[] = {"random", "sequential"};
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
                                              "warmup_stable_decay"};
};

}  // namespace hasten
