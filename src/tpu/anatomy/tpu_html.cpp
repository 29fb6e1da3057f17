// Writes the estimate of a dry TPU as one self-contained HTML page.
#include "base/page.h"
#include "hasten/tpu/anatomy/detail/tpu_estimate.h"
#include "tpu/anatomy/tpu.js.h"

namespace hasten::anatomy {

std::string to_html(const TpuEstimate& estimate, const TpuPrediction* prediction) {
  return render_page("TPU memory", to_json(estimate, prediction), embedded::kTpuScript);
}

}  // namespace hasten::anatomy
