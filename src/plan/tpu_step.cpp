#include "plan/tpu_step.h"

#include "anatomy/run_in_fork.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "tpu/device/opened_tpu.h"

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

}  // namespace

TpuStep predict_on_tpu(const EstimateOptions& options) {
  throw_if_tpu_open();
  const std::string found = anatomy::run_in_fork([&] {
    const anatomy::TpuEstimate estimate = estimate_for_tpu(options);
    return str(estimate.peak.total(), '\n', rejection_reason(estimate));
  });
  const std::size_t line = found.find('\n');
  return {.bytes = std::stoll(found.substr(0, line)), .rejection_reason = found.substr(line + 1)};
}

}  // namespace hasten
