// Describes every training argument that hasten supports. Flags, file keys, HASTEN_ names, help and
// the reference page come from here, in the order of the struct. Names without a field are in
// known_names.cpp.
#include "config/known_names.h"
#include "hasten/config/describe.h"
#include "hasten/config/training_arguments.h"

namespace hasten {
namespace {

using A = TrainingArguments;
using D = config::Describer<A>;

void what_to_do(D& d) {
  d.group("What to do");
  d("output_dir", &A::output_dir,
    "Folder for checkpoints, the final model, results and the log; made where it is missing.");
  d("overwrite_output_dir", &A::overwrite_output_dir,
    "Start anew in an output_dir that holds checkpoints already; without it, and without "
    "resume_from_checkpoint, such a folder is an error.");
  d("do_train", &A::do_train,
    "Train. `hasten train` does unless only do_eval or do_predict is asked for.");
  d("do_eval", &A::do_eval, "Evaluate at the end. Follows eval_strategy.");
  d("do_predict", &A::do_predict, "Write predictions at the end.");
  d("resume_from_checkpoint", &A::resume_from_checkpoint,
    "Go on from a checkpoint folder; `true` takes the newest complete one in output_dir.");
}

void duration(D& d) {
  d.group("Duration and batches");
  d("per_device_train_batch_size", &A::per_device_train_batch_size, "Rows of one training batch.")
      .at_least(1);
  d("per_device_eval_batch_size", &A::per_device_eval_batch_size, "Rows of one evaluation batch.")
      .at_least(1);
  d("num_train_epochs", &A::num_train_epochs,
    "Passes over the data; a fraction ends inside the last one.")
      .at_least(0);
  d("max_steps", &A::max_steps,
    "Optimizer steps in all. Above 0 it wins over num_train_epochs, and the data repeats.")
      .at_least(-1);
  d("gradient_accumulation_steps", &A::gradient_accumulation_steps,
    "Batches whose gradients make one step.")
      .at_least(1);
  d("average_tokens_across_devices", &A::average_tokens_across_devices,
    "Weigh losses by the tokens of all processes; false is refused with several, and the same with "
    "one.");
}

void learning_rate(D& d) {
  d.group("Learning rate");
  d("learning_rate", &A::learning_rate, "Peak learning rate, reached after warm-up.").at_least(0);
  d("lr_scheduler_type", &A::lr_scheduler_type, "How the rate goes on after warm-up.")
      .later({"reduce_lr_on_plateau", "greedy"});
  d("lr_scheduler_kwargs", &A::lr_scheduler_kwargs,
    "Arguments of the schedule, as name=value,... or a JSON object; a map in files.");
  d("warmup_steps", &A::warmup_steps,
    "Steps of rising rate at the start; below 1 a share of all steps.")
      .at_least(0)
      .former_name("warmup_ratio", 1.0);
}

void optimizer(D& d) {
  d.group("Optimizer");
  d("optim", &A::optim, "Optimizer.").later(config::optimizers_not_yet());
  d("optim_args", &A::optim_args,
    "Arguments of the optimizer, as name=value,... or a JSON object; a map in files.");
  d("weight_decay", &A::weight_decay,
    "Decay of weights a step, not applied to biases, layer norms and RMS norms.")
      .at_least(0);
  d("adam_beta1", &A::adam_beta1, "AdamW: memory of the mean of gradients.").at_least(0).below(1);
  d("adam_beta2", &A::adam_beta2, "AdamW: memory of the mean of squared gradients.")
      .at_least(0)
      .below(1);
  d("adam_epsilon", &A::adam_epsilon, "AdamW: added to the denominator of the update.").at_least(0);
  d("max_grad_norm", &A::max_grad_norm,
    "Scale gradients down to this norm where it is larger; 0 = never.")
      .at_least(0);
  d("label_smoothing_factor", &A::label_smoothing_factor,
    "Share of the target given evenly to all labels.")
      .at_least(0)
      .below(1);
}

void precision(D& d) {
  d.group("Precision and device");
  d("bf16", &A::bf16, "Compute in bfloat16 where it is safe; weights stay float32.");
  d("fp16", &A::fp16, "Compute in float16 where it is safe.")
      .refuse("bf16 needs no loss scaling: use that");
  d("bf16_full_eval", &A::bf16_full_eval,
    "Evaluate in bfloat16 (autocast; the weights stay float32).");
  d("fp16_full_eval", &A::fp16_full_eval, "Evaluate with float16 weights.")
      .refuse("use bf16_full_eval");
  d("use_cpu", &A::use_cpu, "Stay on the CPU though there is an accelerator.")
      .former_name("no_cuda");
  d("num_threads", &A::num_threads, "Threads of one operation on the CPU; 0 = as LibTorch picks.")
      .at_least(0);
  d("torch_empty_cache_steps", &A::torch_empty_cache_steps,
    "Steps between emptying the accelerator's cache; no effect on the CPU.")
      .at_least(1);
  d("full_determinism", &A::full_determinism, "Only deterministic kernels; slower.");
  d("seed", &A::seed, "Seed of weights, dropout and data order.").at_least(0);
  d("data_seed", &A::data_seed, "Seed of the data order alone; unset = seed.").at_least(0);
}

void logging(D& d) {
  d.group("Logging");
  d("logging_strategy", &A::logging_strategy, "When to log.");
  d("logging_steps", &A::logging_steps, "Steps between logs; below 1 a share of all steps.")
      .at_least(0);
  d("logging_first_step", &A::logging_first_step, "Log the first step too.");
  d("logging_nan_inf_filter", &A::logging_nan_inf_filter,
    "Leave losses that are not finite out of the logged mean; they are counted and shown either "
    "way.");
  d("stop_on_nonfinite_loss", &A::stop_on_nonfinite_loss,
    "End the run with an error at a loss that is not finite.");
  d("include_num_input_tokens_seen", &A::include_num_input_tokens_seen,
    "Count the input tokens in the logs.")
      .spelling("true", "all")
      .spelling("false", "no");
  d("log_level", &A::log_level, "How much to tell on standard error; passive = info.")
      .spelling("detail", "debug");
  d("disable_tqdm", &A::disable_tqdm,
    "No progress bar; unset = a bar where standard error is a terminal.");
  d("report_to", &A::report_to, "Trackers to report to.")
      .one_of({"none"})
      .later(config::trackers_not_yet());
  d("run_name", &A::run_name,
    "Name of the run, kept in training_args.json; there is no tracker yet to show it.");
  d("skip_memory_metrics", &A::skip_memory_metrics, "Leave memory figures out of the metrics.");
  d("anatomy", &A::anatomy,
    "Where memory and operations of the first steps went: text for tables, or a file ending in "
    ".json or .html.");
  d("anatomy_steps", &A::anatomy_steps, "Optimizer steps the anatomy looks at.").at_least(1);
}

void evaluation(D& d) {
  d.group("Evaluation");
  d("eval_strategy", &A::eval_strategy, "When to evaluate during training.")
      .former_name("evaluation_strategy");
  d("eval_steps", &A::eval_steps,
    "Steps between evaluations; below 1 a share of all steps; unset = logging_steps.")
      .at_least(0);
  d("eval_delay", &A::eval_delay,
    "Steps or epochs, as eval_strategy counts, before the first evaluation.")
      .at_least(0);
  d("eval_on_start", &A::eval_on_start, "Evaluate before the first step too.");
  d("eval_accumulation_steps", &A::eval_accumulation_steps,
    "Batches before predictions move from the device to memory; unset = all at the end. No effect "
    "on the CPU.")
      .at_least(1);
  d("prediction_loss_only", &A::prediction_loss_only,
    "Keep the loss alone, neither predictions nor metrics.");
}

void checkpoints(D& d) {
  d.group("Checkpoints");
  d("save_strategy", &A::save_strategy,
    "When to save; best = at every improvement of metric_for_best_model.");
  d("save_steps", &A::save_steps, "Steps between checkpoints; below 1 a share of all steps.")
      .at_least(0);
  d("save_total_limit", &A::save_total_limit,
    "Checkpoints to keep; older ones go, never the newest nor the best one. Unset = keep all.")
      .at_least(1);
  d("save_only_model", &A::save_only_model,
    "Save the weights alone: smaller, but no run can resume from them.");
  d("load_best_model_at_end", &A::load_best_model_at_end,
    "End with the weights of the best checkpoint.");
  d("metric_for_best_model", &A::metric_for_best_model,
    "Metric that tells the best, with or without `eval_`. With load_best_model_at_end it follows "
    "as loss.");
  d("greater_is_better", &A::greater_is_better,
    "Follows metric_for_best_model: false where that ends in `loss`.");
  d("save_on_each_node", &A::save_on_each_node,
    "The main process of each machine writes, for machines without a common folder; else the "
    "job's alone.");
  d("ignore_data_skip", &A::ignore_data_skip,
    "Resume at the start of the data, not where the run stood.");
}

void data(D& d) {
  d.group("Data loading");
  d("train_sampling_strategy", &A::train_sampling_strategy, "Order of the training rows.")
      .later({"group_by_length", "batch_rebalance"});
  d("dataloader_drop_last", &A::dataloader_drop_last,
    "Leave out the last training batch of an epoch where it is not full.");
  d("dataloader_num_workers", &A::dataloader_num_workers,
    "Background workers; 0 = load in the training thread.")
      .at_least(0);
  d("dataloader_pin_memory", &A::dataloader_pin_memory,
    "Load into pinned memory; no effect on the CPU.");
  d("dataloader_prefetch_factor", &A::dataloader_prefetch_factor,
    "Batches that each worker holds ready.")
      .at_least(1);
  d("label_names", &A::label_names, "Column of the labels; unset = labels.");
}

void several_processes(D& d) {
  d.group("Several processes");
  d("ddp_find_unused_parameters", &A::ddp_find_unused_parameters,
    "A step may leave parameters out; unset = false, and one that does is an error that names "
    "them.");
  d("ddp_bucket_cap_mb", &A::ddp_bucket_cap_mb, "MiB of gradients sent at once; unset = 25.")
      .at_least(1);
  d("ddp_broadcast_buffers", &A::ddp_broadcast_buffers,
    "Send the main process's buffers before each forward pass; unset = true.");
  d("ddp_static_graph", &A::ddp_static_graph,
    "Every step uses the same parameters in the same order; unset = false.");
  d("ddp_timeout", &A::ddp_timeout, "Seconds that processes wait for one another.").at_least(1);
}

}  // namespace

void describe(config::OptionTable& table, TrainingArguments& arguments) {
  D d(table, arguments);
  what_to_do(d);
  duration(d);
  learning_rate(d);
  optimizer(d);
  precision(d);
  logging(d);
  evaluation(d);
  checkpoints(d);
  data(d);
  several_processes(d);
  config::describe_known_names(d);
}

}  // namespace hasten
