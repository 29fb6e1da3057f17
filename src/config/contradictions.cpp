// Checks values that are each in range but contradict each other or cannot mean what was intended.
#include <algorithm>
#include <cmath>

#include "config/derive.h"
#include "config/kwargs_rules.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::config {
namespace {

using A = TrainingArguments;

[[noreturn]] void contradiction(const std::string& what, const std::string& hint) {
  throw ConfigError("config.contradiction", {.what = what, .hint = hint});
}

[[noreturn]] void out_of_range(const std::string& what, const std::string& got,
                               const std::string& expected) {
  throw ConfigError("config.out-of-range", {.what = what, .got = got, .expected = expected});
}

// From 1 on, steps are whole; below 1 they are a share of all steps. 0 steps would never be due.
void check_steps(const char* name, double steps) {
  if (steps > 0 && (steps < 1 || steps == std::floor(steps))) return;
  out_of_range(name, str(steps), "a whole number of at least 1, or a share of all steps in (0, 1)");
}

double eval_steps(const A& a) {
  return a.eval_steps.value_or(0) == 0 ? a.logging_steps : *a.eval_steps;
}

void check_intervals(const A& a) {
  if (a.logging_strategy == IntervalStrategy::steps) check_steps("logging_steps", a.logging_steps);
  if (a.save_strategy == SaveStrategy::steps) check_steps("save_steps", a.save_steps);
  if (a.eval_strategy == IntervalStrategy::steps) {
    check_steps(
        a.eval_steps.value_or(0) == 0 ? "logging_steps, the default of eval_steps" : "eval_steps",
        eval_steps(a));
  }
  if (a.warmup_steps >= 1 && a.warmup_steps != std::floor(a.warmup_steps)) {
    out_of_range("warmup_steps", str(a.warmup_steps),
                 "a whole number, or a share of all steps in [0, 1)");
  }
}

void check_duration(const A& a) {
  if (a.max_steps > 0 || a.num_train_epochs > 0) return;
  contradiction("nothing to train: max_steps is " + str(a.max_steps) + " and num_train_epochs is " +
                    str(a.num_train_epochs),
                "set one of them above 0");
}

void check_precision(const A& a) {
  if (a.bf16 && a.fp16) contradiction("bf16 and fp16 are both set", "keep bf16");
  if (a.bf16_full_eval && a.fp16_full_eval) {
    contradiction("bf16_full_eval and fp16_full_eval are both set", "keep bf16_full_eval");
  }
}

// A checkpoint can be the best one only if it was evaluated, so every save must coincide with an
// evaluation.
void check_saves_meet_evaluations(const A& a) {
  if (a.save_strategy == SaveStrategy::best) return;
  const auto save = name_of(a.save_strategy), eval = name_of(a.eval_strategy);
  if (save != eval) {
    contradiction(
        "load_best_model_at_end needs save_strategy and eval_strategy to be equal: they are " +
            std::string(save) + " and " + std::string(eval),
        "use --save_strategy " + std::string(eval));
  }
  if (a.eval_strategy != IntervalStrategy::steps) return;
  const double every = eval_steps(a), multiple = a.save_steps / every;
  if ((a.save_steps < 1) != (every < 1)) {
    contradiction(
        "load_best_model_at_end needs save_steps and eval_steps to be both steps or both shares: "
        "they are " +
            str(a.save_steps) + " and " + str(every),
        "use --save_steps " + str(every));
  }
  // Shares are decimal fractions, so their quotient is whole only up to rounding.
  if (multiple >= 1 && std::fabs(multiple - std::round(multiple)) < 1e-9) return;
  contradiction(
      "load_best_model_at_end needs save_steps to be a multiple of eval_steps: they are " +
          str(a.save_steps) + " and " + str(every),
      "use --save_steps " + str(every * std::max(1.0, std::round(multiple))));
}

void check_best(const A& a) {
  const bool best = a.save_strategy == SaveStrategy::best;
  if (!best && !a.load_best_model_at_end) return;
  const std::string who = best ? "save_strategy best" : "load_best_model_at_end";
  if (a.eval_strategy == IntervalStrategy::no) {
    contradiction(who + " needs evaluations: eval_strategy is no",
                  "use --eval_strategy epoch --save_strategy epoch");
  }
  if (best && !a.load_best_model_at_end && a.metric_for_best_model.empty()) {
    contradiction("save_strategy best needs metric_for_best_model",
                  "use --metric_for_best_model loss");
  }
  if (a.load_best_model_at_end) check_saves_meet_evaluations(a);
  if (a.prediction_loss_only && !a.metric_for_best_model.empty() &&
      !ends_with(a.metric_for_best_model, "loss")) {
    contradiction("metric_for_best_model " + a.metric_for_best_model +
                      " is never computed with prediction_loss_only",
                  "use --metric_for_best_model loss, or remove prediction_loss_only");
  }
}

void check_loading(const A& a) {
  if (a.dataloader_num_workers > 0) return;
  if (a.dataloader_prefetch_factor) {
    contradiction("dataloader_prefetch_factor needs workers: dataloader_num_workers is 0",
                  "use --dataloader_num_workers 1");
  }
}

void check_anatomy(const A& a) {
  if (a.anatomy.empty() || a.anatomy == "text" || ends_with(a.anatomy, ".json") ||
      ends_with(a.anatomy, ".html"))
    return;
  out_of_range("anatomy", "'" + a.anatomy + "'", "text, or a file ending in .json or .html");
}

void check_output(const A& a) {
  if (a.output_dir.empty()) out_of_range("output_dir", "''", "a folder");
  const std::string resume = lower(a.resume_from_checkpoint);
  if (a.overwrite_output_dir && !resume.empty() && resume != "false") {
    contradiction("overwrite_output_dir starts over and resume_from_checkpoint resumes",
                  "remove one of them");
  }
}

}  // namespace

void check_contradictions(const A& a) {
  check_anatomy(a);
  check_output(a);
  check_duration(a);
  check_precision(a);
  check_intervals(a);
  check_best(a);
  check_loading(a);
  check_schedule_kwargs(a);
  check_optimizer_args(a);
}

}  // namespace hasten::config
