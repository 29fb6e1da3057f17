// File: models/rotary_positions.h (internal)
// Rotary positions (Su et al. 2021): pairs of numbers of a head are rotated by an angle in
// proportion to the position, so that products of queries and keys depend on the distance between
// them.
//
//   const RotaryPositions rotary(config.rope_parameters, /*head_size=*/64, /*max_positions=*/2048);
//   const Rotation rotation = rotary.at(positions);      // [rows or 1, tokens]
//   q = rotation.apply(q);                               // [rows, tokens, heads * 64]
//
// The frequencies are computed on the CPU by the operators that transformers 5.23 uses
// (modeling_rope_utils.py), so that they are equal to the last bit. at() keeps a copy of them on
// the device of its latest positions, because copying them in each pass would make the host wait.
// Thread rule: at() may be called on any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>

#include "hasten/models/detail/llama_config.h"
#include "hasten/ops/ops.h"

namespace hasten {

// Cosines and sines of the angles [rows or 1, tokens, head size / 2].
struct Rotation {
  at::Tensor cosines, sines;

  // Returns x [rows, tokens, heads * head size] with each head rotated.
  at::Tensor apply(const at::Tensor& x) const { return ops::rotate(x, cosines, sines); }
};

class RotaryPositions {
 public:
  RotaryPositions(const RopeParameters& rope, std::int64_t head_size, std::int64_t max_positions);
  Rotation at(const at::Tensor& positions) const;

 private:
  at::Tensor frequencies_on(at::Device device) const;

  at::Tensor frequencies_;  // [head size / 2]
  mutable std::mutex mutex_;
  mutable at::Tensor latest_;  // frequencies_ on the latest device
};

}  // namespace hasten
