#include "trainer/run_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/saturated.h"
#include "hasten/base/error.h"

namespace hasten {

Plan plan_of(const TrainingArguments& args, std::optional<std::int64_t> rows,
             std::optional<std::int64_t> batches, std::int64_t processes) {
  if (!batches && args.max_steps <= 0) {
    throw ConfigError("trainer.max-steps",
                      {.what = "max_steps",
                       .got = "none, and training data that do not know their number of rows",
                       .expected = "the number of optimizer steps",
                       .hint = "set max_steps: num_train_epochs has no meaning for a stream of "
                               "unknown size; or give the stream size()"});
  }
  Plan plan{};
  // A stream counts as one epoch of the run's steps, so that the epoch in the state is the share of
  // the steps that are done.
  plan.batches_per_epoch =
      batches ? *batches : saturated_product(args.max_steps, args.gradient_accumulation_steps);
  plan.steps_per_epoch = std::max<std::int64_t>(
      1, quotient_rounded_up(plan.batches_per_epoch, args.gradient_accumulation_steps));
  if (args.max_steps > 0) {
    plan.max_steps = args.max_steps;
    plan.epochs = batches ? quotient_rounded_up(plan.max_steps, plan.steps_per_epoch)
                          : std::numeric_limits<std::int64_t>::max();
    plan.samples =
        static_cast<double>(plan.max_steps) * static_cast<double>(rows_of_step(args, processes));
  } else {
    plan.max_steps = saturated_count(
        std::ceil(args.num_train_epochs * static_cast<double>(plan.steps_per_epoch)));
    plan.epochs = saturated_count(std::ceil(args.num_train_epochs));
    plan.samples = static_cast<double>(rows.value_or(0)) * args.num_train_epochs;
  }
  plan.logging_steps = absolute_steps(args.logging_steps, plan.max_steps);
  plan.eval_steps = absolute_steps(args.eval_steps.value_or(args.logging_steps), plan.max_steps);
  plan.save_steps = absolute_steps(args.save_steps, plan.max_steps);
  if (args.load_best_model_at_end && args.save_strategy == SaveStrategy::steps) {
    // Only an evaluated checkpoint can be the best one. The argument save_steps is a multiple of
    // eval_steps (options/training_rules.cpp), but shares lose this when each is rounded up.
    plan.save_steps =
        saturated_product(quotient_rounded_up(plan.save_steps, plan.eval_steps), plan.eval_steps);
  }
  return plan;
}

}  // namespace hasten
