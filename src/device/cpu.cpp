#include <ATen/CPUGeneratorImpl.h>

#include "device/known_devices.h"

namespace hasten {
namespace {

class Cpu final : public Device {
 public:
  Cpu() : Device(at::kCPU, {.adamw = AdamWKernel::hasten, .can_be_simulated = true}) {}

  bool is_available() const override { return true; }
  std::vector<NamedGenerator> generators() const override {
    return {{.name = "cpu", .generator = at::detail::getDefaultCPUGenerator()}};
  }
};

}  // namespace

const Device& cpu() {
  static const Cpu one;
  return one;
}

}  // namespace hasten
