#include "tpu/plan/tpu_step_model.h"

#include <cstdint>
#include <string>
#include <string_view>

#include "anatomy/run_in_fork.h"
#include "base/parse_number.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "plan/techniques.h"
#include "tpu/device/opened_tpu.h"
#include "tpu/machine/tpus.h"

namespace hasten {
namespace {

void throw_if_tpu_open() {
  if (!tpu_is_open()) return;
  throw UsageError("process.fork-after-tpu",
                   {.what = "compare_changes for a TPU",
                    .got = "a process that has opened one, whose forks cannot use it",
                    .hint = "call compare_changes before anything opens a TPU"});
}

const char* rejection_reason(const anatomy::TpuEstimate& estimate) {
  if (estimate.stopped.empty()) return "";
  return fits(estimate) ? "does not compile" : "does not fit";
}

class TpuStepModel final : public StepModel {
 public:
  StepPrediction predict(const EstimateOptions& step) override {
    throw_if_tpu_open();
    const std::string found = anatomy::run_in_fork([&] {
      const anatomy::TpuEstimate estimate = estimate_for_tpu(step);
      return str(estimate.peak.total(), '\n', rejection_reason(estimate));
    });
    const std::size_t line = found.find('\n');
    return {
        .cost = {.bytes =
                     parse_number<std::int64_t>(std::string_view(found).substr(0, line)).value()},
        .rejection_reason = found.substr(line + 1)};
  }

  // The compiler runs once for the whole step.
  bool adds_equal_micro_batches() const override { return false; }

  std::string exclusion_reason(const PlanOptions&, const Technique& technique) const override {
    const bool is_predicted = technique.name == "bf16" || technique.name == "sgd";
    return is_predicted ? "" : "hasten does not predict it for a TPU";
  }
};

}  // namespace

std::unique_ptr<StepModel> make_tpu_step_model(std::string_view device) {
  return starts_with(device, kTpuDevice) ? std::make_unique<TpuStepModel>() : nullptr;
}

}  // namespace hasten
