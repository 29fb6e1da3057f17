// The end of a training run: its metrics, and the weights of its best checkpoint.
#include "checkpoint/damaged_checkpoint.h"
#include "hasten/base/error.h"
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

void Trainer::Impl::load_best_model() {
  if (state.best_model_checkpoint.empty()) {
    const std::string reason = state.best_global_step
                                   ? str("there is no checkpoint of the best evaluation, at step ",
                                         *state.best_global_step)
                                   : "no evaluation has given a finite " +
                                         args.metric_for_best_model + " with a checkpoint";
    logger.warning("load_best_model_at_end: " + reason +
                   ", so the model keeps the weights of the last step");
    return;
  }
  const std::filesystem::path best = state.best_model_checkpoint;
  try {
    once(group(), writes(), [&] { verify_checkpoint(best); });
  } catch (const Error& error) {
    // Another attempt would find the same damage, and the trained weights must not be lost. If the
    // system cannot read a file now, another attempt may find the best model.
    if (!is_damage_error(error)) rethrow_unused_checkpoint(best, error);
    logger.warning(
        str("load_best_model_at_end: the best checkpoint ", best.string(),
            " is damaged, so the model keeps the weights of the last step: ", error.what()));
    state.best_model_checkpoint.clear();
    return;
  }
  // A process that fails alone would leave the others with another model.
  once(group(), true, [&] { load_model_files(*model, best); });
  logger.info(str("loaded the best model: ", state.best_model_checkpoint, " (",
                  args.metric_for_best_model, " ", *state.best_metric, ")"));
}

}  // namespace hasten
