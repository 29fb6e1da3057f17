// Estimates the memory of a model's steps on a dry TPU.
#include "hasten/base/error.h"
#include "hasten/tpu/anatomy/dry_tpu.h"
#include "hasten/trainer/estimate.h"
#include "tpu/machine/tpus.h"
#include "trainer/estimate_workload.h"

namespace hasten {
namespace {

template <class Model>
void infer_on(DryTpu& dry, const EstimateOptions& options, const std::shared_ptr<Model>& model,
              const EstimateBatches& batches) {
  Accelerator accelerator(accelerator_options_of(options));
  infer_workload(accelerator, options, model, batches, [&] {
    return [&] {
      dry.step();
      return dry.steps() >= options.steps;
    };
  });
}

}  // namespace

anatomy::TpuEstimate estimate_for_tpu(const EstimateOptions& options) {
  if (options.mode == EstimateMode::generation) {
    throw DataError(
        "models.task",
        {.what = "an estimate of a generation", .got = "a TPU", .expected = "the CPU or a GPU"});
  }
  DryTpu dry(options.device.substr(kTpuDevice.size()));
  const EstimateWorkload workload(options);
  std::string stopped;
  try {
    workload.visit([&](const auto& model, const EstimateBatches& batches) {
      if (options.mode == EstimateMode::inference) {
        infer_on(dry, options, model, batches);
      } else {
        train_workload(options, model, batches);
      }
    });
  } catch (const c10::Error& error) {
    // Keeps what the compiler reports. Other errors of the program go to the caller.
    if (dry.estimate().failed.empty()) throw;
    stopped = error.what_without_backtrace();
  }
  anatomy::TpuEstimate estimate = dry.estimate();
  estimate.stopped = stopped;
  return estimate;
}

}  // namespace hasten
