// File: optim/quantized_moments.h (internal)
// The 8-bit moments of AdamW8bit and Lion8bit. The states of the parameters hold them.
//
//   const bool quantizes = is_quantized(parameter, options);
//   ops::Moments means;
//   add_moment(means, "AdamW8bit", "exp_avg", parameter, *state, quantizes);
//
// A state has a tensor with the name of the moment and the shape of the parameter. It holds uint8
// codes or floats. With codes, a second tensor, "..._scale", holds the scales. Thread rule: that of
// the optimizer.
#pragma once

#include <torch/torch.h>

#include <string>
#include <unordered_map>

#include "hasten/optim/gradients.h"
#include "hasten/optim/stateful_optimizer.h"
#include "ops/moment_steps.h"

namespace hasten {

// Throws for options out of range.
void check_quantization(const char* optimizer, std::int64_t bits, std::int64_t min_8bit_size);
// Throws UsageError "optim.dtype" for a parameter that is neither float nor bfloat16.
void check_moment_type(const char* optimizer, const at::Tensor& parameter);

template <class Options>
bool is_quantized(const at::Tensor& parameter, const Options& options) {
  return options.bits() == 8 && parameter.numel() >= options.min_8bit_size();
}

// Adds a moment of the state, which is created in the first step. Throws DataError
// "optim.incomplete-state" if it does not have the form that the options require.
void add_moment(ops::Moments& moments, const char* optimizer, const std::string& name,
                const at::Tensor& parameter, ParamState& state, bool quantizes);

// A parameter in one step.
struct MomentEntry {
  at::Tensor parameter;
  at::Tensor values;    // the parameter, or a contiguous copy of it
  at::Tensor gradient;  // contiguous, or rows of a contiguous table

  MomentEntry(const at::Tensor& parameter, const at::Tensor& gradient);
  bool has_rows() const { return gradient.is_sparse(); }
  void write_back() const {
    if (!values.is_same(parameter)) parameter.copy_(values);
  }
};

// The same steps on devices other than the CPU, with LibTorch's operators, one parameter at a time.
// They process one range of elements at a time, so that the decoded numbers take little memory.
class MomentsOnDevice {
 public:
  // Multiplies the gradient by `scale` instead of the factor in `how`.
  void adamw(const MomentEntry& entry, const ops::Moments& exp_avg, const ops::Moments& exp_avg_sq,
             std::int64_t step, const ops::AdamWStep& settings, const GradientScale& scale);
  void lion(const MomentEntry& entry, const ops::Moments& exp_avg, const ops::LionStep& settings);

 private:
  // The map of a codebook on the device of the parameters.
  struct Map {
    at::Tensor value, next;
  };
  const Map& map_on(at::Device device, bool has_sign);
  at::Tensor decode(const ops::Moments& moment, std::int64_t first, std::int64_t count,
                    bool has_sign);
  void encode(const ops::Moments& moment, std::int64_t first, const at::Tensor& numbers,
              bool has_sign);

  std::unordered_map<at::Device, Map> signed_maps_, unsigned_maps_;
};

}  // namespace hasten
