// File: hasten/optim/detail/adamw_8bit.h
// AdamW with 8-bit moments, which take a quarter of the memory of AdamW's states (Dettmers et al.
// 2021, "8-bit Optimizers via Block-wise Quantization", arXiv 2110.02861).
//
//   hasten::AdamW8bit adamw(model->parameters(), hasten::AdamW8bitOptions(5e-5).weight_decay(0.01));
//   loss.backward();
//   adamw.step();
//   adamw.zero_grad();
//
// Each moment has one byte for each element, and one float for each block of 256 elements (in
// row-major order), which is the largest magnitude of the block. Both moments together take 2.03
// bytes for each float of a parameter. A byte is an index into the 256 numbers of a dynamic tree
// map, signed for the mean of gradients and unsigned for the mean of squares. A step decodes a
// block, makes AdamW's step in float with the exact new moments, and encodes them as the nearest
// numbers. The maps and the block size match bitsandbytes; the paper uses blocks of 2048.
// Parameters with fewer than min_8bit_size elements, and groups with bits(32), have float moments.
//
// Defaults: lr 1e-3, betas 0.9 and 0.999, eps 1e-8, weight_decay 1e-2 (decoupled), bits 8,
// min_8bit_size 4096. Parameters are float or bfloat16. On the CPU the result has the same bits
// with every instruction set and any number of threads; a sparse gradient gives the result of the
// equivalent dense gradient, to the last bit. On other devices the step consists of LibTorch's
// operators. A gradient that is not finite makes its weights not finite, as with AdamW.
//
// Also throws UsageError "optim.dtype" (a parameter of another type). For other errors and the
// thread rule, see stateful_optimizer.h.
#pragma once

#include "hasten/base/detail/export.h"
#include "hasten/optim/gradients.h"
#include "hasten/optim/stateful_optimizer.h"

namespace hasten {

class HASTEN_API AdamW8bitOptions : public CloneableParamGroupOptions<AdamW8bitOptions> {
 public:
  static constexpr const char* kName = "AdamW8bit";
  explicit AdamW8bitOptions(double lr = 1e-3)
      : CloneableParamGroupOptions(lr, /*weight_decay=*/1e-2) {}
  using Betas = std::tuple<double, double>;
  TORCH_ARG(Betas, betas) = {0.9, 0.999};
  TORCH_ARG(double, eps) = 1e-8;
  // The number of bits per element of a moment: 8 or 32.
  TORCH_ARG(std::int64_t, bits) = 8;
  // Parameters with fewer elements have float moments.
  TORCH_ARG(std::int64_t, min_8bit_size) = 4096;

 public:
  void check() const override;
  int floats_per_parameter() const override { return 2; }
  double bytes_per_parameter() const override { return bits_ == 8 ? 2 : 8; }

 protected:
  void visit(OptionVisitor& option) override;
};

class HASTEN_API AdamW8bit : public TypedOptimizer<AdamW8bitOptions>,
                             public GradientScalingOptimizer {
 public:
  using TypedOptimizer::TypedOptimizer;

  at::Tensor step(LossClosure closure = nullptr) override;
  bool takes_sparse_gradients() const override { return true; }

 protected:
  void update(const AdamW8bitOptions& options, const Entries& entries) override;
  void read(const AdamW8bitOptions& options, const Entries& entries) const override;
  void check_parameter(const at::Tensor& parameter) const override;
};

}  // namespace hasten
