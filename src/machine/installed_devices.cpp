#include "machine/installed_devices.h"

#include <cstddef>

#include "machine/installed_gpus.h"
#include "tpu/machine/installed_tpus.h"

namespace hasten::config {

std::int64_t installed_devices() {
  const std::size_t gpus = visible_gpus().size();
  return static_cast<std::int64_t>(gpus > 0 ? gpus : installed_tpus().size());
}

}  // namespace hasten::config
