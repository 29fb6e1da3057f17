// The end of a training run: its metrics, and the weights of its best checkpoint.
#include "hasten/base/text.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/device/memory.h"
#include "hasten/process/once.h"
#include "trainer/run_parts.h"
#include "trainer/saved_model.h"
#include "trainer/trainer_impl.h"
#include "trainer/work_counter.h"

namespace hasten {

Metrics Trainer::Impl::final_metrics(const RunFigures& figures, const RunParts& run,
                                     const WorkCounter& work) const {
  const auto steps = static_cast<double>(figures.steps);
  Metrics metrics =
      speed_metrics("train", figures.seconds,
                    run.plan.samples * steps / static_cast<double>(run.plan.max_steps), steps);
  if (work.knows_flos()) metrics["total_flos"] = state.total_flos;
  metrics["train_loss"] = figures.loss;
  if (!args.skip_memory_metrics)
    metrics["train_mem_cpu_peak"] = static_cast<double>(host_memory().peak_resident);
  if (run.losses.nonfinite() > 0)
    metrics["nonfinite_losses"] = static_cast<double>(run.losses.nonfinite());
  if (const auto scale = accelerator.loss_scale(); scale && scale->skipped_steps > 0)
    metrics["skipped_steps"] = static_cast<double>(scale->skipped_steps);
  return metrics;
}

void Trainer::Impl::load_best_model() const {
  if (state.best_model_checkpoint.empty()) {
    logger.warning("load_best_model_at_end: no evaluation has given a finite " +
                   args.metric_for_best_model +
                   " with a checkpoint, so the model keeps the weights of the last step");
    return;
  }
  once(group(), writes(), [&] { verify_checkpoint(state.best_model_checkpoint); });
  load_model_files(*model, state.best_model_checkpoint);
  logger.info(str("loaded the best model: ", state.best_model_checkpoint, " (",
                  args.metric_for_best_model, " ", *state.best_metric, ")"));
}

}  // namespace hasten
