#include "hasten/prepare/detail/autocast.h"

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include "machine/cpu_instructions.h"
#include "prepare/lstm_autocast.h"

namespace hasten {

bool bf16_is_fast(at::Device device) {
  static const bool fast = has_cpu_instructions({"avx512_bf16", "amx_bf16"});
  return !device.is_cpu() || fast;
}

bool fp16_is_fast(at::Device device) {
  static const bool fast = has_cpu_instructions({"avx512_fp16", "amx_fp16"});
  return !device.is_cpu() || fast;
}

AutocastGuard::AutocastGuard(Precision precision, at::DeviceType device) : device_(device) {
  if (precision == Precision::no) return;
  before_ = {.enabled = at::autocast::is_autocast_enabled(device),
             .type = at::autocast::get_autocast_dtype(device)};
  const at::ScalarType type = precision == Precision::fp16 ? at::kHalf : at::kBFloat16;
  if (device == at::kCPU && !has_lstm_kernel(type)) replace_lstm_under_autocast();
  at::autocast::set_autocast_enabled(device, true);
  at::autocast::set_autocast_dtype(device, type);
  at::autocast::increment_nesting();
}

AutocastGuard::~AutocastGuard() {
  if (!before_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_dtype(device_, before_->type);
  at::autocast::set_autocast_enabled(device_, before_->enabled);
}

}  // namespace hasten
