// File: hasten/optim/detail/lion_8bit.h
// Lion with an 8-bit momentum. Its state takes a quarter of the memory of Lion's state and an
// eighth of AdamW's.
//
//   hasten::Lion8bit lion(model->parameters(), hasten::Lion8bitOptions(1e-4).weight_decay(0.1));
//   loss.backward();
//   lion.step();
//
// The momentum has the format of AdamW8bit's mean of gradients (adamw_8bit.h): 1.02 bytes for each
// float of a parameter. Types, sparse gradients, bits and min_8bit_size are handled as in
// AdamW8bit. Defaults: lr 1e-4, betas 0.9 and 0.99, weight_decay 0 (decoupled), bits 8,
// min_8bit_size 4096. Also throws UsageError "optim.dtype". For other errors and the thread rule,
// see stateful_optimizer.h.
#pragma once

#include "hasten/base/detail/export.h"
#include "hasten/optim/stateful_optimizer.h"

namespace hasten {

class HASTEN_API Lion8bitOptions : public CloneableParamGroupOptions<Lion8bitOptions> {
 public:
  static constexpr const char* kName = "Lion8bit";
  explicit Lion8bitOptions(double lr = 1e-4) : CloneableParamGroupOptions(lr, /*weight_decay=*/0) {}
  using Betas = std::tuple<double, double>;
  TORCH_ARG(Betas, betas) = {0.9, 0.99};
  // The number of bits per element of the momentum: 8 or 32.
  TORCH_ARG(std::int64_t, bits) = 8;
  // Parameters with fewer elements have a float momentum.
  TORCH_ARG(std::int64_t, min_8bit_size) = 4096;

 public:
  void check() const override;
  int floats_per_parameter() const override { return 1; }
  double bytes_per_parameter() const override { return bits_ == 8 ? 1 : 4; }

 protected:
  void visit(OptionVisitor& option) override;
};

class HASTEN_API Lion8bit : public TypedOptimizer<Lion8bitOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;
  bool takes_sparse_gradients() const override { return true; }

 protected:
  void update(const Lion8bitOptions& options, const Entries& entries) override;
  void read(const Lion8bitOptions& options, const Entries& entries) const override;
  void check_parameter(const at::Tensor& parameter) const override;
};

}  // namespace hasten
