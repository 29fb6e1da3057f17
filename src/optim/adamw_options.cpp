#include <torch/torch.h>

#include "hasten/base/error.h"
#include "optim/adamw_parts.h"

namespace hasten {

AdamWOptions& AdamWOptions::lr(double value) {
  torch::optim::AdamWOptions::lr(value);
  return *this;
}
AdamWOptions& AdamWOptions::betas(std::tuple<double, double> values) {
  torch::optim::AdamWOptions::betas(values);
  return *this;
}
AdamWOptions& AdamWOptions::eps(double value) {
  torch::optim::AdamWOptions::eps(value);
  return *this;
}
AdamWOptions& AdamWOptions::weight_decay(double value) {
  torch::optim::AdamWOptions::weight_decay(value);
  return *this;
}
AdamWOptions& AdamWOptions::amsgrad(bool value) {
  torch::optim::AdamWOptions::amsgrad(value);
  return *this;
}

AdamWOptions& AdamWOptions::state_dtype(at::ScalarType type) {
  if (!is_float_or_bfloat16(type)) {
    throw UsageError("optim.dtype", {.what = "hasten::AdamWOptions::state_dtype",
                                     .got = c10::toString(type),
                                     .expected = "Float or BFloat16"});
  }
  state_dtype_ = type;
  return *this;
}
AdamWOptions& AdamWOptions::stochastic_rounding(bool value) {
  stochastic_rounding_ = value;
  return *this;
}
AdamWOptions& AdamWOptions::rounding_seed(std::int64_t seed) {
  rounding_seed_ = seed;
  return *this;
}

std::unique_ptr<torch::optim::OptimizerOptions> AdamWOptions::clone() const {
  return std::make_unique<AdamWOptions>(*this);
}

void AdamWOptions::serialize(torch::serialize::InputArchive& archive) {
  torch::optim::AdamWOptions::serialize(archive);
  c10::IValue value;  // absent in archives of earlier versions and of LibTorch
  if (archive.try_read("state_dtype", value)) state_dtype(value.toScalarType());
  if (archive.try_read("stochastic_rounding", value)) stochastic_rounding(value.toBool());
  if (archive.try_read("rounding_seed", value)) rounding_seed(value.toInt());
}

void AdamWOptions::serialize(torch::serialize::OutputArchive& archive) const {
  torch::optim::AdamWOptions::serialize(archive);
  archive.write("state_dtype", c10::IValue(static_cast<std::int64_t>(state_dtype_)));
  archive.write("stochastic_rounding", c10::IValue(stochastic_rounding_));
  archive.write("rounding_seed", c10::IValue(rounding_seed_));
}

}  // namespace hasten
