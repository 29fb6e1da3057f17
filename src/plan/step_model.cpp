#include "plan/step_model.h"

#include "hasten/base/text.h"
#include "hasten/machine/gpus.h"
#include "hasten/prepare/detail/autocast.h"
#include "plan/step_time_model.h"
#include "tpu/plan/tpu_step_model.h"

namespace hasten {
namespace {

// True if the technique copies between the device and host memory.
bool is_offloading(const Technique& technique) {
  return has_setting(technique, "activation_offloading") ||
         has_setting(technique, "offload_optimizer_states") ||
         technique.name == "recompute_offload";
}

// Returns the reason why 16-bit numbers make the step slower, by a factor of about 20, or an empty
// text if they do not.
std::string slowness_reason(const EstimateOptions& step, const Technique& technique) {
  if (technique.group != "precision" && technique.group != "weights") return "";
  const bool is_fp16 = technique.name == "fp16";
  if (step.device == "cpu") {
    const bool is_fast = is_fp16 ? fp16_is_fast(at::kCPU) : bf16_is_fast(at::kCPU);
    return is_fast ? "" : "this CPU has no fast instructions for it";
  }
  const bool is_fast = is_fp16 || find_gpu(step.device).bf16_flops_per_second > 0;
  return is_fast ? "" : str(step.device, " has no bfloat16");
}

// The model for the CPU and for GPUs.
class HostOrGpuStepModel final : public StepModel {
 public:
  explicit HostOrGpuStepModel(double budget) : time_(budget) {}

  StepPrediction predict(const EstimateOptions& step) override {
    return {.cost = time_.predict(step), .rejection_reason = ""};
  }
  bool adds_equal_micro_batches() const override { return true; }

  std::string exclusion_reason(const PlanOptions& options,
                               const Technique& technique) const override {
    if (is_offloading(technique)) {
      if (options.step.device == "cpu")
        return "on the CPU everything is in the host's memory already";
      if (options.predictor) return "the time of its copies is not known for a program";
    }
    if (options.predictor && has_setting(technique, kAttentionSetting))
      return "a program chooses it by itself";
    return slowness_reason(options.step, technique);
  }

 private:
  StepTimeModel time_;
};

}  // namespace

std::unique_ptr<StepModel> make_step_model(const PlanOptions& options) {
  if (auto model = make_tpu_step_model(options.step.device)) return model;
  return std::make_unique<HostOrGpuStepModel>(options.budget);
}

}  // namespace hasten
