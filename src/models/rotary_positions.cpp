#include "models/rotary_positions.h"

#include <torch/torch.h>

#include <numbers>

namespace hasten {
namespace {

// Divides low frequencies by the factor, keeps high ones, and interpolates between the two.
at::Tensor llama3_frequencies(const at::Tensor& frequencies, const RopeParameters& rope,
                              std::int64_t max_positions) {
  const auto context = static_cast<double>(rope.original_max_position_embeddings > 0
                                               ? rope.original_max_position_embeddings
                                               : max_positions);
  const double longest = context / rope.low_freq_factor, shortest = context / rope.high_freq_factor;
  const at::Tensor wavelengths = (2 * std::numbers::pi) / frequencies;
  const at::Tensor is_low = wavelengths.gt(longest), is_high = wavelengths.lt(shortest);
  const at::Tensor divided = at::where(is_low, frequencies / rope.factor, frequencies);
  const at::Tensor smooth_factor = (context / wavelengths - rope.low_freq_factor) /
                                   (rope.high_freq_factor - rope.low_freq_factor);
  const at::Tensor between = (1 - smooth_factor) * divided / rope.factor + smooth_factor * divided;
  return at::where(is_low.logical_or(is_high), divided, between);
}

}  // namespace

RotaryPositions::RotaryPositions(const RopeParameters& rope, std::int64_t head_size,
                                 std::int64_t max_positions) {
  const at::Tensor exponents =
      at::arange(0, head_size, 2, at::kFloat) / static_cast<double>(head_size);
  frequencies_ = at::pow(rope.rope_theta, exponents).reciprocal();
  if (rope.rope_type == "linear") frequencies_ = frequencies_ / rope.factor;
  if (rope.rope_type == "llama3")
    frequencies_ = llama3_frequencies(frequencies_, rope, max_positions);
}

at::Tensor RotaryPositions::frequencies_on(at::Device device) const {
  if (device == frequencies_.device()) return frequencies_;
  const std::lock_guard lock(mutex_);
  if (!latest_.defined() || latest_.device() != device) latest_ = frequencies_.to(device);
  return latest_;
}

Rotation RotaryPositions::at(const at::Tensor& positions) const {
  const at::Tensor angles =
      positions.to(at::kFloat).unsqueeze(-1) * frequencies_on(positions.device());
  return {angles.cos(), angles.sin()};
}

}  // namespace hasten
