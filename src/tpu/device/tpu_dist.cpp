#include "tpu/device/tpu_dist.h"

#include "tpu/device/tpu_function.h"

namespace hasten {
namespace {

using Make = c10d::Backend*(const CollectiveSettings&);

class TpuDist final : public CollectiveBackend {
 public:
  std::string name() const override { return "tpu_dist"; }
  c10d::ProcessGroup::BackendType type() const override {
    return c10d::ProcessGroup::BackendType::CUSTOM;
  }

  c10::intrusive_ptr<c10d::Backend> make(const CollectiveSettings& settings) const override {
    static Make& make = tpu_function<Make>("hasten_tpu_dist");
    return c10::intrusive_ptr<c10d::Backend>::reclaim(make(settings));
  }
};

}  // namespace

const CollectiveBackend& tpu_dist() {
  static const TpuDist one;
  return one;
}

}  // namespace hasten
