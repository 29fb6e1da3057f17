// Writes the account of a dry TPU as one self-contained HTML page.
#include "base/page.h"
#include "hasten/tpu/anatomy/tpu_account.h"
#include "tpu/anatomy/tpu.js.h"

namespace hasten::anatomy {

std::string to_html(const TpuAccount& account, const TpuPrediction* prediction) {
  return render_page("TPU memory", to_json(account, prediction), embedded::kTpuScript);
}

}  // namespace hasten::anatomy
