#include "plan/tpu_step.h"

#include "anatomy/forked_text.h"
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

const char* why_stopped(const anatomy::TpuAccount& account) {
  if (account.stopped.empty()) return "";
  return fits(account) ? "does not compile" : "does not fit";
}

}  // namespace

TpuStep predict_on_tpu(const EstimateOptions& options) {
  throw_if_tpu_open();
  const std::string found = anatomy::forked_text([&] {
    const anatomy::TpuAccount account = estimate_for_tpu(options);
    return str(account.peak.total(), '\n', why_stopped(account));
  });
  const std::size_t line = found.find('\n');
  return {.bytes = std::stoll(found.substr(0, line)), .stopped = found.substr(line + 1)};
}

}  // namespace hasten
