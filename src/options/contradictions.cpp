// Checks values that are each in range but contradict each other or cannot mean what was intended.
#include <algorithm>
#include <cmath>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "options/derive.h"
#include "options/kwargs_rules.h"
#include "options/messages.h"

namespace hasten::config {
namespace {

[[noreturn]] void throw_out_of_range(const std::string& what, const std::string& got,
                                     const std::string& expected) {
  throw ConfigError("config.out-of-range", {.what = what, .got = got, .expected = expected});
}

// From 1 on, steps are whole; below 1 they are a share of all steps. 0 steps would never be due.
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

void check_precision(const TrainingArguments& arguments) {
  if (arguments.bf16 && arguments.fp16) throw_conflict("bf16 and fp16 are both set", "keep bf16");
  if (arguments.bf16_full_eval && arguments.fp16_full_eval) {
    throw_conflict("bf16_full_eval and fp16_full_eval are both set", "keep bf16_full_eval");
  }
}

// A checkpoint can be the best one only if it was evaluated, so every save must coincide with an
// evaluation.
void check_saves_meet_evaluations(const TrainingArguments& arguments) {
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
  // Shares are decimal fractions, so their quotient is whole only up to rounding.
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
  if (arguments.load_best_model_at_end) check_saves_meet_evaluations(arguments);
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
    throw_conflict("report_to has none beside other trackers", "remove none");
}

void check_output(const TrainingArguments& arguments) {
  if (arguments.output_dir.empty()) throw_out_of_range("output_dir", "''", "a folder");
  const std::string resume = lower(arguments.resume_from_checkpoint);
  if (arguments.overwrite_output_dir && !resume.empty() && resume != "false") {
    throw_conflict("overwrite_output_dir starts over and resume_from_checkpoint resumes",
                   "remove one of them");
  }
}

}  // namespace

void check_contradictions(const TrainingArguments& arguments) {
  check_anatomy(arguments);
  check_output(arguments);
  check_trackers(arguments);
  check_duration(arguments);
  check_precision(arguments);
  check_intervals(arguments);
  check_best(arguments);
  check_loading(arguments);
  check_schedule_kwargs(arguments);
  check_optimizer_args(arguments);
}

}  // namespace hasten::config
