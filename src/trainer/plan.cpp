#include "trainer/plan.h"

#include <algorithm>
#include <cmath>

namespace hasten {

Plan plan_of(const TrainingArguments& args, std::int64_t rows, std::int64_t batches,
             std::int64_t processes) {
  Plan plan{};
  plan.batches_per_epoch = batches;
  plan.steps_per_epoch = std::max<std::int64_t>(
      1, (batches + args.gradient_accumulation_steps - 1) / args.gradient_accumulation_steps);
  if (args.max_steps > 0) {
    plan.max_steps = args.max_steps;
    plan.epochs = (plan.max_steps + plan.steps_per_epoch - 1) / plan.steps_per_epoch;
    plan.samples = static_cast<double>(plan.max_steps * args.per_device_train_batch_size *
                                       args.gradient_accumulation_steps * processes);
  } else {
    plan.max_steps = static_cast<std::int64_t>(
        std::ceil(args.num_train_epochs * static_cast<double>(plan.steps_per_epoch)));
    plan.epochs = static_cast<std::int64_t>(std::ceil(args.num_train_epochs));
    plan.samples = static_cast<double>(rows) * args.num_train_epochs;
  }
  plan.logging_steps = absolute_steps(args.logging_steps, plan.max_steps);
  plan.eval_steps = absolute_steps(args.eval_steps.value_or(args.logging_steps), plan.max_steps);
  plan.save_steps = absolute_steps(args.save_steps, plan.max_steps);
  return plan;
}

}  // namespace hasten
