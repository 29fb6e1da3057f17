#include "hasten/prepare/precision.h"

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <fstream>
#include <string>

namespace hasten {

namespace {

// Returns whether this CPU has one of two instruction sets.
bool has_instructions(const char* one, const char* other) {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.rfind("flags", 0) == 0)
      return line.find(one) != std::string::npos || line.find(other) != std::string::npos;
  }
  return false;
}

}  // namespace

bool bf16_is_fast(at::Device device) {
  static const bool fast = has_instructions("avx512_bf16", "amx_bf16");
  return !device.is_cpu() || fast;
}

bool fp16_is_fast(at::Device device) {
  static const bool fast = has_instructions("avx512_fp16", "amx_fp16");
  return !device.is_cpu() || fast;
}

AutocastGuard::AutocastGuard(Precision precision, at::DeviceType device) : device_(device) {
  if (precision == Precision::no) return;
  before_ = {.enabled = at::autocast::is_autocast_enabled(device),
             .type = at::autocast::get_autocast_dtype(device)};
  at::autocast::set_autocast_enabled(device, true);
  at::autocast::set_autocast_dtype(device,
                                   precision == Precision::fp16 ? at::kHalf : at::kBFloat16);
  at::autocast::increment_nesting();
}

AutocastGuard::~AutocastGuard() {
  if (!before_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_dtype(device_, before_->type);
  at::autocast::set_autocast_enabled(device_, before_->enabled);
}

}  // namespace hasten
