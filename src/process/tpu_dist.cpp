#include "process/tpu_dist.h"

#include "hasten/base/error.h"
#include "process/module.h"

namespace hasten {
namespace {

using Make = c10d::Backend*(const TpuDistSettings&);

}  // namespace

c10::intrusive_ptr<c10d::Backend> tpu_dist_backend(const TpuDistSettings& settings) {
  static const auto module = load_module<Make>("libhasten_tpu.so", "hasten_tpu_dist");
  if (module.function == nullptr) {
    throw IoError("device.tpu-module",
                  {.what = "hasten's module for TPUs",
                   .got = module.missing,
                   .hint = "apt-get install python3-dev, and build hasten again"});
  }
  return c10::intrusive_ptr<c10d::Backend>::reclaim(module.function(settings));
}

}  // namespace hasten
