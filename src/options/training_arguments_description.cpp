// Describes every training argument that hasten supports. Flags, file keys, HASTEN_ names, help and
// the reference page come from here, in the order of the struct. Names without a field are in
// known_names.cpp.
#include "hasten/options/training_arguments.h"
#include "options/describe.h"
#include "options/training_rules.h"

namespace hasten {
namespace {

using ArgumentDescriber = config::Describer<TrainingArguments>;

void actions(ArgumentDescriber& d) {
  d.group("Actions and output");
  d("output_dir", &TrainingArguments::output_dir,
    "Write checkpoints, the final model, results and the log to this folder, which is created if "
    "it is missing.");
  d("overwrite_output_dir", &TrainingArguments::overwrite_output_dir,
    "Start over in an output_dir that already has checkpoints or, in `hasten train`, a model. "
    "Without this option and without resume_from_checkpoint, such a folder is an error.");
  d("do_train", &TrainingArguments::do_train,
    "Train. `hasten train` does so by default, unless do_eval or do_predict is set.");
  d("do_eval", &TrainingArguments::do_eval,
    "Evaluate at the end. This is on if eval_strategy is not no; by default, `hasten train` also "
    "turns it on if there is eval_data.");
  d("do_predict", &TrainingArguments::do_predict,
    "Write predictions for the evaluation rows at the end.");
  d("resume_from_checkpoint", &TrainingArguments::resume_from_checkpoint,
    "Resume from this checkpoint folder; `true` selects the newest complete one in output_dir.");
}

void duration(ArgumentDescriber& d) {
  d.group("Duration and batches");
  d("per_device_train_batch_size", &TrainingArguments::per_device_train_batch_size,
    "Set the number of rows in a training batch of one process.")
      .at_least(1);
  d("per_device_eval_batch_size", &TrainingArguments::per_device_eval_batch_size,
    "Set the number of rows in an evaluation batch of one process.")
      .at_least(1);
  d("auto_find_batch_size", &TrainingArguments::auto_find_batch_size,
    "If a training step runs out of memory, start again with smaller batches, of which a step "
    "accumulates more, so that it has as many rows. All processes do so if one of them runs out; "
    "the gradients are then exchanged after the backward pass and not during it.");
  d("num_train_epochs", &TrainingArguments::num_train_epochs,
    "Pass over the data this many times; a fraction ends within the last pass.")
      .at_least(0);
  d("max_steps", &TrainingArguments::max_steps,
    "Make this many optimizer steps. A number above 0 overrides num_train_epochs, and the data "
    "repeats.")
      .at_least(-1);
  d("gradient_accumulation_steps", &TrainingArguments::gradient_accumulation_steps,
    "Accumulate the gradients of this many batches in each step.")
      .at_least(1);
  d("average_tokens_across_devices", &TrainingArguments::average_tokens_across_devices,
    "Weight losses by the tokens of all processes. False is an error with several processes and "
    "has no effect with one.");
}

void learning_rate(ArgumentDescriber& d) {
  d.group("Learning rate");
  d("learning_rate", &TrainingArguments::learning_rate,
    "Set the peak learning rate, which is reached after warm-up.")
      .at_least(0);
  d("lr_scheduler_type", &TrainingArguments::lr_scheduler_type,
    "Select the schedule of the learning rate after warm-up. reduce_lr_on_plateau and greedy "
    "follow metric_for_best_model (if unset, loss) from evaluation to evaluation, without "
    "warm-up.");
  d("lr_scheduler_kwargs", &TrainingArguments::lr_scheduler_kwargs,
    "Set arguments of the schedule: name=value,... or a JSON object, or a map in files.");
  d("warmup_steps", &TrainingArguments::warmup_steps,
    "Raise the learning rate over this many steps at the start; below 1, over this share of all "
    "steps.")
      .at_least(0)
      .former_name("warmup_ratio", 1.0);
}

void optimizer(ArgumentDescriber& d) {
  d.group("Optimizer");
  config::describe_unsupported_optimizers(
      d("optim", &TrainingArguments::optim,
        "Select the optimizer. adamax, lamb, lbfgs, muon, nadam and radam are "
        "hasten's own names.")
          .alias("adamw_torch_xla", "adamw_torch_fused")
          .alias("adamw_bnb_8bit", "adamw_8bit")
          .alias("adamw_torch_8bit", "adamw_8bit")
          .alias("rmsprop_bnb", "rmsprop")
          .alias("rmsprop_bnb_32bit", "rmsprop"));
  d("optim_args", &TrainingArguments::optim_args,
    "Set arguments of the optimizer: name=value,... or a JSON object, or a map in files.");
  d("weight_decay", &TrainingArguments::weight_decay,
    "Set the weight decay, which is not applied to biases, layer norms and RMS norms.")
      .at_least(0);
  d("adam_beta1", &TrainingArguments::adam_beta1,
    "Adam-like optimizers and Lion: set the decay rate of the mean of gradients.")
      .at_least(0)
      .below(1);
  d("adam_beta2", &TrainingArguments::adam_beta2,
    "Adam-like optimizers and Lion: set the second decay rate (of squared gradients).")
      .at_least(0)
      .below(1);
  d("adam_epsilon", &TrainingArguments::adam_epsilon,
    "Adam-like optimizers: add this number to the denominator of the update.")
      .at_least(0);
  d("max_grad_norm", &TrainingArguments::max_grad_norm,
    "Scale gradients down to this norm if theirs is larger; 0 means never.")
      .at_least(0);
  d("label_smoothing_factor", &TrainingArguments::label_smoothing_factor,
    "Distribute this share of the target evenly over all labels.")
      .at_least(0)
      .below(1);
  d("neftune_noise_alpha", &TrainingArguments::neftune_noise_alpha,
    "Add uniform noise to the embeddings during training (NEFTune): at most this number, divided "
    "by the square root of length times hidden size. If unset, no noise is added.")
      .at_least(0);
  d("step_in_backward", &TrainingArguments::step_in_backward,
    "Update each parameter in the backward pass, as soon as its gradient is complete, and free the "
    "gradient. It needs max_grad_norm 0, one process, and a step of one batch.");
  d("offload_optimizer_states", &TrainingArguments::offload_optimizer_states,
    "Keep the optimizer's states in host memory and step on the CPU. It has no effect on "
    "the CPU.");
  d("use_liger_kernel", &TrainingArguments::use_liger_kernel,
    "Compute the loss of masked-lm, causal-lm and token-classification for some tokens at a time, "
    "without "
    "whole "
    "logits and without padding. If unset, hasten does so unless something reads the logits.");
}

void precision(ArgumentDescriber& d) {
  d.group("Precision and device");
  d("bf16", &TrainingArguments::bf16,
    "Compute in bfloat16 where it is safe. Weights stay float32.");
  d("fp16", &TrainingArguments::fp16,
    "Compute in float16 where it is safe, with scaled losses. Weights stay float32.");
  d("bf16_full_eval", &TrainingArguments::bf16_full_eval,
    "Evaluate in bfloat16 (autocast). Weights stay float32.");
  d("fp16_full_eval", &TrainingArguments::fp16_full_eval,
    "Evaluate in float16 (autocast). Weights stay float32.");
  d("tf32", &TrainingArguments::tf32,
    "Compute products of float32 in TF32 on a GPU, which keeps 10 of 23 bits of their factors. If "
    "unset, LibTorch decides: convolutions and recurrent layers only.");
  d("weights_dtype", &TrainingArguments::weights_dtype,
    "Keep weights and gradients in this type, also in files. With bfloat16 AdamW rounds its "
    "updates "
    "stochastically; there is no copy in float32.");
  d("use_cpu", &TrainingArguments::use_cpu, "Use the CPU even if there is an accelerator.")
      .former_name("no_cuda");
  d("num_threads", &TrainingArguments::num_threads,
    "Use this many threads for one operation on the CPU; 0 means LibTorch's choice.")
      .at_least(0);
  d("torch_empty_cache_steps", &TrainingArguments::torch_empty_cache_steps,
    "Empty the accelerator's cache at intervals of this many steps. If unset, the cache is never "
    "emptied. It "
    "has no effect on the CPU.")
      .at_least(1);
  d("activation_checkpointing", &TrainingArguments::activation_checkpointing,
    "Recompute the activations of layers in the backward pass instead of keeping them, which takes "
    "less memory and more time (docs/techniques.md).")
      .former_name("gradient_checkpointing");
  d("activation_checkpointing_kwargs", &TrainingArguments::activation_checkpointing_kwargs,
    "Set what is recomputed: name=value,... or a JSON object, or a map in files.")
      .former_name("gradient_checkpointing_kwargs");
  d("activation_offloading", &TrainingArguments::activation_offloading,
    "Keep large activations in host memory between the forward and the backward pass. It is an "
    "error "
    "on the CPU, where they are in host memory already.");
  d("padding_free", &TrainingArguments::padding_free,
    "Compute batches without padding, also on a GPU: the host puts the rows of a batch into one "
    "row, and attention gets their lengths. Evaluations keep padding if something reads outputs of "
    "tokens. It is for models of hasten's own that read texts. It is an error on a TPU.");
  d("cuda_graph", &TrainingArguments::cuda_graph,
    "Start all kernels of a step with one call. It helps where the host is slower than the GPU. It "
    "needs AdamW and one process. If unset, it is on for models of hasten's own whose batches keep "
    "one shape; with true, rows are padded to a few lengths, and a run that cannot do so says "
    "why.");
  d("full_determinism", &TrainingArguments::full_determinism,
    "Use only deterministic kernels, which are slower.");
  d("seed", &TrainingArguments::seed, "Set the seed of weights, dropout and data order.")
      .at_least(0);
  d("data_seed", &TrainingArguments::data_seed,
    "Set the seed of the data order only. If unset, seed is used.")
      .at_least(0);
}

void logging(ArgumentDescriber& d) {
  d.group("Logging");
  d("logging_strategy", &TrainingArguments::logging_strategy, "Select when to log.");
  d("logging_steps", &TrainingArguments::logging_steps,
    "Log at intervals of this many steps; below 1, of this share of all steps.")
      .at_least(0);
  d("logging_first_step", &TrainingArguments::logging_first_step, "Also log the first step.");
  d("logging_nan_inf_filter", &TrainingArguments::logging_nan_inf_filter,
    "Leave losses that are not finite out of the logged mean. They are counted and shown in any "
    "case.");
  d("stop_on_nonfinite_loss", &TrainingArguments::stop_on_nonfinite_loss,
    "End the run with an error if a loss is not finite, before the optimizer steps with it.");
  d("include_num_input_tokens_seen", &TrainingArguments::include_num_input_tokens_seen,
    "Log the number of input tokens seen: all of them, or those that are not padding.")
      .alias("true", "all")
      .alias("false", "no");
  d("log_level", &TrainingArguments::log_level,
    "Set the level of messages on standard error; passive means info.")
      .alias("detail", "debug");
  d("disable_tqdm", &TrainingArguments::disable_tqdm,
    "Show no progress bar. If unset, `hasten train` shows one, in a file as a line from time to "
    "time, and a Trainer in another program shows one only on a terminal.");
  d("report_to", &TrainingArguments::report_to,
    "Report to these trackers: tensorboard writes event files, jsonl and csv write metrics.jsonl "
    "and "
    "metrics.csv, mlflow sends to the server of MLFLOW_TRACKING_URI; all means all that can be "
    "used.")
      .one_of({"none", "all", "tensorboard", "jsonl", "csv", "mlflow"})
      .unimplemented_choices(config::unsupported_trackers());
  d("logging_dir", &TrainingArguments::logging_dir,
    "Write the files of trackers to this folder. If unset, the variable "
    "TENSORBOARD_LOGGING_DIR names it, or else it is the folder runs in output_dir.");
  d("run_name", &TrainingArguments::run_name,
    "Set the name of the run, which is the last folder of the files of trackers. If unset, it is "
    "the time and the host's name in the default folder.");
  d("skip_memory_metrics", &TrainingArguments::skip_memory_metrics,
    "Leave memory figures out of the metrics.");
  d("anatomy", &TrainingArguments::anatomy,
    "Report the memory and operations of the first steps: text prints tables, and a name ending in "
    ".json or .html is a file to write.");
  d("anatomy_steps", &TrainingArguments::anatomy_steps,
    "Record this many optimizer steps in the anatomy.")
      .at_least(1);
}

void evaluation(ArgumentDescriber& d) {
  d.group("Evaluation");
  d("eval_strategy", &TrainingArguments::eval_strategy, "Select when to evaluate during training.")
      .former_name("evaluation_strategy");
  d("eval_steps", &TrainingArguments::eval_steps,
    "Evaluate at intervals of this many steps; below 1, of this share of all steps. If unset, "
    "logging_steps applies.")
      .at_least(0);
  d("eval_delay", &TrainingArguments::eval_delay,
    "Wait this many steps or epochs, whichever eval_strategy counts, before the first evaluation.")
      .at_least(0);
  d("eval_on_start", &TrainingArguments::eval_on_start, "Also evaluate before the first step.");
  d("eval_accumulation_steps", &TrainingArguments::eval_accumulation_steps,
    "Move predictions from the device to memory at intervals of this many batches. If unset, all "
    "are moved at the end. It has no effect on the CPU.")
      .at_least(1);
  d("prediction_loss_only", &TrainingArguments::prediction_loss_only,
    "Keep only the loss, without predictions and metrics.");
}

void checkpoints(ArgumentDescriber& d) {
  d.group("Checkpoints");
  d("save_strategy", &TrainingArguments::save_strategy,
    "Select when to save; best means at every improvement of metric_for_best_model.");
  d("save_steps", &TrainingArguments::save_steps,
    "Save a checkpoint at intervals of this many steps; below 1, of this share of all steps.")
      .at_least(0);
  d("save_total_limit", &TrainingArguments::save_total_limit,
    "Keep at most this many checkpoints. Older ones are deleted, but never the newest or the best. "
    "If unset, all are kept.")
      .at_least(1);
  d("save_keep_every", &TrainingArguments::save_keep_every,
    "Never delete the checkpoints whose step is a multiple of this number. They do not count for "
    "save_total_limit. 0 keeps none.")
      .at_least(0);
  d("save_only_model", &TrainingArguments::save_only_model,
    "Save only the weights. Checkpoints are smaller, but no run can resume from them.");
  d("async_save", &TrainingArguments::async_save,
    "Copy the state of a checkpoint in memory, and write it while training goes on. If unset, do "
    "so "
    "where the copy fits in half of the free memory.");
  d("enable_jit_checkpoint", &TrainingArguments::enable_jit_checkpoint,
    "Also save a checkpoint when a signal stops the run. `hasten train` stops on SIGTERM, SIGINT, "
    "SIGHUP and SIGUSR1, and saves by default, unless save_strategy is no; a program needs "
    "StopOnSignal.");
  d("load_best_model_at_end", &TrainingArguments::load_best_model_at_end,
    "Load the weights of the best checkpoint at the end.");
  d("metric_for_best_model", &TrainingArguments::metric_for_best_model,
    "Select the best checkpoint by this metric, with or without `eval_`. If unset, "
    "load_best_model_at_end sets it to loss.");
  d("greater_is_better", &TrainingArguments::greater_is_better,
    "Treat larger values of metric_for_best_model as better. If unset, it is true unless its name "
    "ends in `loss`.");
  d("save_on_each_node", &TrainingArguments::save_on_each_node,
    "Let the main process of each machine write, for machines without a shared folder. Otherwise "
    "only the job's main process writes.");
  d("ignore_data_skip", &TrainingArguments::ignore_data_skip,
    "Resume at the start of the data instead of where the run stopped.");
  d("hash_chain_steps", &TrainingArguments::hash_chain_steps,
    "Write the hashes of rows, loss, weights and optimizer state to hash_chain.jsonl in output_dir "
    "at "
    "intervals of this many steps, for `hasten verify` and `hasten diff`. 0 writes none.")
      .at_least(0);
}

void data(ArgumentDescriber& d) {
  d.group("Data loading");
  d("train_sampling_strategy", &TrainingArguments::train_sampling_strategy,
    "Select the order of the training rows. group_by_length puts rows of similar length into one "
    "batch, which saves padding. batch_rebalance makes batches of different sizes that cost the "
    "same, for several processes or accumulation.")
      .former_name("group_by_length")
      .alias("true", "group_by_length")
      .alias("false", "random");
  d("length_column_name", &TrainingArguments::length_column_name,
    "Name the column of the rows' lengths for group_by_length and batch_rebalance. Without such a "
    "column, the number of input_ids counts.");
  d("dataloader_drop_last", &TrainingArguments::dataloader_drop_last,
    "Drop the last training batch of an epoch if it is not full.");
  d("dataloader_num_workers", &TrainingArguments::dataloader_num_workers,
    "Load batches with this many background workers; 0 means in the training thread.")
      .at_least(0);
  d("dataloader_pin_memory", &TrainingArguments::dataloader_pin_memory,
    "Load batches into pinned memory. It has no effect on the CPU.");
  d("dataloader_prefetch_factor", &TrainingArguments::dataloader_prefetch_factor,
    "Load this many batches ahead with each worker. If unset, the number is 2.")
      .at_least(1);
  d("label_names", &TrainingArguments::label_names,
    "Set the column of the labels, or several, of which the first weights a batch. If unset, "
    "it is labels.");
}

void several_processes(ArgumentDescriber& d) {
  d.group("Several processes");
  d("accelerator_config", &TrainingArguments::accelerator_config,
    "Set how processes share batches: name=value,... or a JSON object, or a map in files.");
  d("ddp_find_unused_parameters", &TrainingArguments::ddp_find_unused_parameters,
    "Allow steps that do not use every parameter. If unset, it is false, and such a step is an "
    "error that names the parameters.");
  d("ddp_bucket_cap_mb", &TrainingArguments::ddp_bucket_cap_mb,
    "Exchange gradients in buckets of this many MiB. If unset, the size is 25.")
      .at_least(1);
  d("ddp_broadcast_buffers", &TrainingArguments::ddp_broadcast_buffers,
    "Broadcast the main process's buffers before each forward pass. If unset, it is true.");
  d("ddp_static_graph", &TrainingArguments::ddp_static_graph,
    "Assume that every step uses the same parameters in the same order. If unset, it is false.");
  d("ddp_timeout", &TrainingArguments::ddp_timeout,
    "Wait at most this many seconds for other processes.")
      .at_least(1);
  d("elastic_ranks", &TrainingArguments::elastic_ranks,
    "Divide each step between this many virtual ranks, a power of two, so that any number of "
    "processes that divides it computes the same bits and can continue from a checkpoint of "
    "another "
    "number (docs/distributed.md). per_device_train_batch_size is that of a virtual rank. It works "
    "on the CPU only; num_threads is 1 unless it is set. 0 means none.")
      .at_least(0);
}

}  // namespace

void describe(config::OptionTable& table, TrainingArguments& arguments) {
  ArgumentDescriber d(table, arguments);
  actions(d);
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
