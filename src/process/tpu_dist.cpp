#include "process/tpu_dist.h"

#include "process/tpu_function.h"

namespace hasten {
namespace {

using Make = c10d::Backend*(const TpuDistSettings&);

}  // namespace

c10::intrusive_ptr<c10d::Backend> tpu_dist_backend(const TpuDistSettings& settings) {
  static Make& make = tpu_function<Make>("hasten_tpu_dist");
  return c10::intrusive_ptr<c10d::Backend>::reclaim(make(settings));
}

}  // namespace hasten
