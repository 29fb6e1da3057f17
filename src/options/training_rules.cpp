// Checks training arguments that are each in range, but contradict each other or cannot have the
// intended effect.
#include "options/training_rules.h"

#include <algorithm>
#include <cmath>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "options/kwarg_rules.h"
#include "options/sources.h"

namespace hasten::config {
namespace {

void check_min_lr(std::string_view owner, const Kwargs& kwargs) {
  const bool rate = kwargs.has("min_lr"), share = kwargs.has("min_lr_rate");
  if (rate != share) return;
  const std::string what =
      std::string(owner) +
      (rate ? " takes one of min_lr and min_lr_rate, not both" : " needs min_lr or min_lr_rate");
  throw_conflict(what, "use --lr_scheduler_kwargs min_lr_rate=0.1");
}

void check_metric_schedule(const TrainingArguments& arguments) {
  const std::string owner(name_of(arguments.lr_scheduler_type));
  const Kwargs& kwargs = arguments.lr_scheduler_kwargs;
  if (arguments.eval_strategy == IntervalStrategy::no) {
    throw_conflict(owner + " needs evaluations, which it follows: eval_strategy is no",
                   "use --eval_strategy epoch");
  }
  const std::string mode = lower(kwargs.text("mode", ""));
  if (mode.empty()) return;
  const std::string metric =
      arguments.metric_for_best_model.empty() ? "loss" : arguments.metric_for_best_model;
  // derive() sets greater_is_better in the same way, but later.
  const bool rises = arguments.greater_is_better.value_or(!ends_with(metric, "loss"));
  if (mode == (rises ? "max" : "min")) return;
  const std::string reason =
      arguments.greater_is_better
          ? str("greater_is_better ", rises)
          : str("metric_for_best_model ", metric, ", which should ", rises ? "rise" : "fall");
  throw_conflict(owner + ": mode " + mode + " contradicts " + reason,
                 "remove mode, which follows greater_is_better");
}

void check_polynomial(const TrainingArguments& arguments) {
  const double end = arguments.lr_scheduler_kwargs.number(
      "lr_end", default_of(schedule_rules(), "polynomial", "lr_end").number());
  if (end < arguments.learning_rate) return;
  throw_conflict(
      str("polynomial: lr_end ", end, " is not below learning_rate ", arguments.learning_rate),
      "use --lr_scheduler_kwargs lr_end=0");
}

void check_schedule_kwargs(const TrainingArguments& arguments) {
  const std::string_view owner = name_of(arguments.lr_scheduler_type);
  const Kwargs& kwargs = arguments.lr_scheduler_kwargs;
  check_kwargs("lr_scheduler_kwargs", owner, kwargs, schedule_rules());
  switch (arguments.lr_scheduler_type) {
    case SchedulerType::cosine_with_min_lr:
    case SchedulerType::cosine_warmup_with_min_lr:
      return check_min_lr(owner, kwargs);
    case SchedulerType::polynomial:
      return check_polynomial(arguments);
    case SchedulerType::reduce_lr_on_plateau:
    case SchedulerType::greedy:
      return check_metric_schedule(arguments);
    default:
      return;
  }
}

// LBFGS has one rate for all parameters, and evaluates the loss of a step several times.
void check_lbfgs(const TrainingArguments& arguments) {
  if (arguments.weight_decay != 0)
    throw_conflict("weight_decay is " + str(arguments.weight_decay) + ", and lbfgs has none",
                   "use --weight_decay 0");
  if (arguments.gradient_accumulation_steps > 1) {
    throw_conflict("gradient_accumulation_steps is " + str(arguments.gradient_accumulation_steps) +
                       ", and lbfgs computes the loss of a step several times",
                   "use a larger --per_device_train_batch_size");
  }
}

void check_optimizer_args(const TrainingArguments& arguments) {
  const Kwargs& kwargs = arguments.optim_args;
  check_kwargs("optim_args", name_of(arguments.optim), kwargs, optimizer_rules());
  if (kwargs.has("max_lr") && !kwargs.flag("decouple_lr", false)) {
    throw_conflict("stable_adamw: max_lr has no effect without decouple_lr",
                   "use --optim_args decouple_lr=true,max_lr=...");
  }
  if (arguments.optim == OptimizerName::lbfgs) return check_lbfgs(arguments);
  if (arguments.optim != OptimizerName::sgd || !kwargs.flag("nesterov", false)) return;
  if (kwargs.number("momentum", 0) > 0 && kwargs.number("dampening", 0) == 0) return;
  throw_conflict("sgd: nesterov needs a momentum above 0 and no dampening",
                 "use --optim_args momentum=0.9,nesterov=true");
}

void check_recomputation(const TrainingArguments& arguments) {
  const Kwargs& kwargs = arguments.activation_checkpointing_kwargs;
  check_kwargs("activation_checkpointing_kwargs", kRecomputation, kwargs, recomputation_rules());
  if (kwargs.empty() || arguments.activation_checkpointing) return;
  throw_conflict("activation_checkpointing_kwargs has no effect: activation_checkpointing is false",
                 "use --activation_checkpointing");
}

void check_sharing(const TrainingArguments& arguments) {
  const Kwargs& kwargs = arguments.accelerator_config;
  check_kwargs("accelerator_config", kSharing, kwargs, sharing_rules());
  const bool splits = kwargs.flag("split_batches", false);
  if (splits && arguments.auto_find_batch_size) {
    throw_conflict(
        "accelerator_config split_batches and auto_find_batch_size, whose smaller batches may not "
        "be divisible by the number of processes",
        "use --auto_find_batch_size false");
  }
  if (arguments.elastic_ranks > 0 && (splits || kwargs.flag("dispatch_batches", false))) {
    throw_conflict(
        str("elastic_ranks and accelerator_config ", splits ? "split_batches" : "dispatch_batches",
            ": each virtual rank has batches of its own"),
        "use --elastic_ranks 0");
  }
}

[[noreturn]] void throw_out_of_range(const std::string& what, const std::string& got,
                                     const std::string& expected) {
  throw ConfigError("config.out-of-range", {.what = what, .got = got, .expected = expected});
}

// A value of 1 or more is a whole number of steps. A value below 1 is a share of all steps. 0 steps
// would never be due.
void check_steps(const char* name, double steps) {
  if (steps > 0 && (steps < 1 || steps == std::floor(steps))) return;
  throw_out_of_range(name, str(steps),
                     "a whole number of at least 1, or a share of all steps in (0, 1)");
}

double eval_steps(const TrainingArguments& arguments) {
  return arguments.eval_steps.value_or(0) == 0 ? arguments.logging_steps : *arguments.eval_steps;
}

void check_intervals(const TrainingArguments& arguments) {
  if (arguments.logging_strategy == IntervalStrategy::steps)
    check_steps("logging_steps", arguments.logging_steps);
  if (arguments.save_strategy == SaveStrategy::steps)
    check_steps("save_steps", arguments.save_steps);
  if (arguments.eval_strategy == IntervalStrategy::steps) {
    check_steps(arguments.eval_steps.value_or(0) == 0 ? "logging_steps, the default of eval_steps"
                                                      : "eval_steps",
                eval_steps(arguments));
  }
  if (arguments.warmup_steps >= 1 && arguments.warmup_steps != std::floor(arguments.warmup_steps)) {
    throw_out_of_range("warmup_steps", str(arguments.warmup_steps),
                       "a whole number, or a share of all steps in [0, 1)");
  }
}

void check_duration(const TrainingArguments& arguments) {
  if (arguments.max_steps > 0 || arguments.num_train_epochs > 0) return;
  throw_conflict("nothing to train: max_steps is " + str(arguments.max_steps) +
                     " and num_train_epochs is " + str(arguments.num_train_epochs),
                 "set one of them above 0");
}

// Only AdamW rounds its updates so that small ones do not vanish in bfloat16.
void check_weights_dtype(const TrainingArguments& arguments) {
  if (arguments.weights_dtype == WeightsType::float32) return;
  const std::string what = str("weights_dtype ", name_of(arguments.weights_dtype));
  if (arguments.optim != OptimizerName::adamw_torch &&
      arguments.optim != OptimizerName::adamw_torch_fused)
    throw_conflict(str(what, " and optim ", name_of(arguments.optim)),
                   "use --optim adamw_torch, which rounds its updates stochastically");
  if (arguments.fp16)
    throw_conflict(what + " and fp16, which needs weights in float32", "leave out --fp16");
}

void check_precision(const TrainingArguments& arguments) {
  if (arguments.bf16 && arguments.fp16) throw_conflict("bf16 and fp16 are both set", "keep bf16");
  if (arguments.bf16_full_eval && arguments.fp16_full_eval) {
    throw_conflict("bf16_full_eval and fp16_full_eval are both set", "keep bf16_full_eval");
  }
  if (arguments.fp16 && arguments.optim == OptimizerName::lbfgs) {
    throw_conflict("fp16 and optim lbfgs, which computes the loss of a step several times",
                   "use --bf16");
  }
  check_weights_dtype(arguments);
}

// A checkpoint can be the best one only if it was evaluated, so an evaluation must happen at every
// save.
void check_saves_match_evaluations(const TrainingArguments& arguments) {
  if (arguments.save_strategy == SaveStrategy::best) return;
  const auto save = name_of(arguments.save_strategy), eval = name_of(arguments.eval_strategy);
  if (save != eval) {
    throw_conflict(
        "load_best_model_at_end needs save_strategy and eval_strategy to be equal: they are " +
            std::string(save) + " and " + std::string(eval),
        "use --save_strategy " + std::string(eval));
  }
  if (arguments.eval_strategy != IntervalStrategy::steps) return;
  const double every = eval_steps(arguments), multiple = arguments.save_steps / every;
  if ((arguments.save_steps < 1) != (every < 1)) {
    throw_conflict(
        "load_best_model_at_end needs save_steps and eval_steps to be both steps or both shares: "
        "they are " +
            str(arguments.save_steps) + " and " + str(every),
        "use --save_steps " + str(every));
  }
  // Shares are decimal fractions, so their quotient is a whole number only up to rounding errors.
  if (multiple >= 1 && std::fabs(multiple - std::round(multiple)) < 1e-9) return;
  throw_conflict(
      "load_best_model_at_end needs save_steps to be a multiple of eval_steps: they are " +
          str(arguments.save_steps) + " and " + str(every),
      "use --save_steps " + str(every * std::max(1.0, std::round(multiple))));
}

void check_best(const TrainingArguments& arguments) {
  const bool best = arguments.save_strategy == SaveStrategy::best;
  if (!best && !arguments.load_best_model_at_end) return;
  const std::string who = best ? "save_strategy best" : "load_best_model_at_end";
  if (arguments.eval_strategy == IntervalStrategy::no) {
    throw_conflict(who + " needs evaluations: eval_strategy is no",
                   "use --eval_strategy epoch --save_strategy epoch");
  }
  if (best && !arguments.load_best_model_at_end && arguments.metric_for_best_model.empty()) {
    throw_conflict("save_strategy best needs metric_for_best_model",
                   "use --metric_for_best_model loss");
  }
  if (arguments.load_best_model_at_end) check_saves_match_evaluations(arguments);
  if (arguments.prediction_loss_only && !arguments.metric_for_best_model.empty() &&
      !ends_with(arguments.metric_for_best_model, "loss")) {
    throw_conflict("metric_for_best_model " + arguments.metric_for_best_model +
                       " is never computed with prediction_loss_only",
                   "use --metric_for_best_model loss, or remove prediction_loss_only");
  }
}

void check_loading(const TrainingArguments& arguments) {
  if (arguments.dataloader_num_workers > 0) return;
  if (arguments.dataloader_prefetch_factor) {
    throw_conflict("dataloader_prefetch_factor needs workers: dataloader_num_workers is 0",
                   "use --dataloader_num_workers 1");
  }
}

void check_anatomy(const TrainingArguments& arguments) {
  if (arguments.anatomy.empty() || arguments.anatomy == "text" ||
      ends_with(arguments.anatomy, ".json") || ends_with(arguments.anatomy, ".html"))
    return;
  throw_out_of_range("anatomy", "'" + arguments.anatomy + "'",
                     "text, or a file ending in .json or .html");
}

void check_trackers(const TrainingArguments& arguments) {
  const auto& names = arguments.report_to;
  if (names.size() > 1 && std::find(names.begin(), names.end(), "none") != names.end())
    throw_conflict("report_to names none and other trackers", "remove none");
}

void check_output(const TrainingArguments& arguments) {
  if (arguments.output_dir.empty()) throw_out_of_range("output_dir", "''", "a folder");
  const std::string resume = lower(arguments.resume_from_checkpoint);
  if (arguments.overwrite_output_dir && !resume.empty() && resume != "false") {
    throw_conflict("overwrite_output_dir starts over and resume_from_checkpoint resumes",
                   "remove one of them");
  }
}

// Refuses arguments with an effect that depends on the number of processes.
void check_elastic_ranks(const TrainingArguments& arguments) {
  const std::int64_t ranks = arguments.elastic_ranks;
  if (ranks <= 0) return;
  if ((ranks & (ranks - 1)) != 0)
    throw_out_of_range("elastic_ranks", str(ranks), "0, or a power of two");
  if (arguments.optim == OptimizerName::lbfgs) {
    throw_conflict("elastic_ranks and optim lbfgs, which computes the loss of a step several times",
                   "use --elastic_ranks 0");
  }
  if (arguments.auto_find_batch_size) {
    throw_conflict("elastic_ranks and auto_find_batch_size, which changes the rows of a rank",
                   "use --auto_find_batch_size false");
  }
}

// Returns true for optimizers that count the steps of a group of parameters together, or that
// compute the loss of a step several times.
bool steps_groups(OptimizerName optimizer) {
  switch (optimizer) {
    case OptimizerName::lbfgs:
    case OptimizerName::lamb:
    case OptimizerName::muon:
    case OptimizerName::schedule_free_adamw:
    case OptimizerName::schedule_free_sgd:
    case OptimizerName::stable_adamw:
      return true;
    default:
      return false;
  }
}

// With step_in_backward, the gradients of a step never exist all at once, and the weights change
// before the pass ends.
void check_step_in_backward(const TrainingArguments& arguments) {
  if (!arguments.step_in_backward) return;
  const auto check_unset = [](bool is_set, const std::string& what, const std::string& hint) {
    if (is_set) throw_conflict("step_in_backward and " + what, hint);
  };
  check_unset(
      arguments.max_grad_norm > 0,
      "max_grad_norm " + str(arguments.max_grad_norm) + ", which needs all gradients at once",
      "use --max_grad_norm 0");
  check_unset(arguments.gradient_accumulation_steps > 1,
              "gradient_accumulation_steps " + str(arguments.gradient_accumulation_steps) +
                  ", whose gradients wait for the last batch",
              "use --gradient_accumulation_steps 1");
  check_unset(arguments.fp16, "fp16, which looks for overflow in all gradients before a step",
              "use --bf16");
  check_unset(steps_groups(arguments.optim),
              "optim " + std::string(name_of(arguments.optim)) +
                  ", whose step needs more than one parameter",
              "use --optim adamw_torch_fused, adamw_8bit or adafactor");
  check_unset(arguments.elastic_ranks > 0,
              "elastic_ranks, which add up the gradients of virtual ranks",
              "use --elastic_ranks 0");
  check_unset(arguments.stop_on_nonfinite_loss,
              "stop_on_nonfinite_loss, which ends the run before the step",
              "remove stop_on_nonfinite_loss");
  check_unset(arguments.auto_find_batch_size,
              "auto_find_batch_size: a pass that runs out of memory has stepped some parameters",
              "use --auto_find_batch_size false");
}

// A graph repeats the operations of a step without the host, so the host cannot make decisions
// during the step.
void check_cuda_graph(const TrainingArguments& arguments) {
  if (!arguments.cuda_graph.value_or(false)) return;
  const GraphConflict found = graph_conflict(arguments);
  if (!found.what.empty()) throw_conflict("cuda_graph and " + found.what, found.hint);
}

void check_padding_free(const TrainingArguments& arguments) {
  if (arguments.padding_free && arguments.neftune_noise_alpha.value_or(0) > 0) {
    throw_conflict(
        "padding_free and neftune_noise_alpha, whose noise depends on the length of padded rows",
        "use --padding_free false");
  }
}

void check_offloaded_states(const TrainingArguments& arguments) {
  if (arguments.offload_optimizer_states && arguments.optim == OptimizerName::lbfgs) {
    throw_conflict(
        "offload_optimizer_states and optim lbfgs, which keeps one state for all parameters",
        "use another optimizer, or remove offload_optimizer_states");
  }
}

}  // namespace

GraphConflict graph_conflict(const TrainingArguments& arguments) {
  const auto is_adamw = arguments.optim == OptimizerName::adamw_torch ||
                        arguments.optim == OptimizerName::adamw_torch_fused;
  if (arguments.fp16)
    return {"fp16, because the host then decides whether the optimizer steps", "use --bf16"};
  if (!is_adamw) {
    return {"optim " + std::string(name_of(arguments.optim)) +
                ", whose kernels are given the learning rate as a number",
            "use --optim adamw_torch_fused"};
  }
  if (arguments.step_in_backward) {
    return {"step_in_backward, which steps single parameters", "use --step_in_backward false"};
  }
  if (arguments.offload_optimizer_states)
    return {"offload_optimizer_states, which step on the host", "remove offload_optimizer_states"};
  if (arguments.activation_offloading) {
    return {"activation_offloading, which the host starts and waits for",
            "remove activation_offloading"};
  }
  if (arguments.stop_on_nonfinite_loss) {
    return {"stop_on_nonfinite_loss, for which the host reads each loss before the step",
            "remove stop_on_nonfinite_loss"};
  }
  if (arguments.elastic_ranks > 0)
    return {"elastic_ranks, which are for CPUs", "use --elastic_ranks 0"};
  return {};
}

GraphConflict automatic_graph_conflict(const TrainingArguments& arguments) {
  // Padding to a few numbers of tokens would change dropout masks.
  if (arguments.padding_free) {
    return {"padding_free, with which each step has another number of tokens",
            "use --cuda_graph, which pads batches to a few numbers of tokens"};
  }
  return graph_conflict(arguments);
}

void check_contradictions(const TrainingArguments& arguments) {
  check_anatomy(arguments);
  check_output(arguments);
  check_trackers(arguments);
  check_duration(arguments);
  check_precision(arguments);
  check_intervals(arguments);
  check_best(arguments);
  check_loading(arguments);
  check_elastic_ranks(arguments);
  check_step_in_backward(arguments);
  check_cuda_graph(arguments);
  check_padding_free(arguments);
  check_offloaded_states(arguments);
  check_schedule_kwargs(arguments);
  check_optimizer_args(arguments);
  check_recomputation(arguments);
  check_sharing(arguments);
}

std::string eval_metric_name(const std::string& name) {
  return starts_with(name, "eval_") ? name : "eval_" + name;
}

}  // namespace hasten::config
