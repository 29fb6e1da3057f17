#include "hasten/optim/gradients.h"

#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "ops/kernels/kernels.h"

namespace hasten {
namespace {

// The numbers of a gradient: of a sparse one the sums of its repeated rows.
at::Tensor values_of(const at::Tensor& gradient) {
  return gradient.is_sparse() ? gradient.coalesce().values() : gradient;
}

bool is_plain(const at::Tensor& x) {
  return x.device().is_cpu() && x.scalar_type() == at::kFloat && x.is_non_overlapping_and_dense();
}

double sum_of_squares(const at::Tensor& values) {
  if (!is_plain(values)) return values.to(at::kDouble).square().sum().item<double>();
  const float* data = values.const_data_ptr<float>();
  // Fixed pieces, so that the sum does not depend on the number of threads.
  constexpr std::int64_t piece = 1 << 16;
  const std::int64_t count = values.numel(), pieces = (count + piece - 1) / piece;
  std::vector<double> sums(pieces);
  at::parallel_for(0, pieces, 4, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i)
      sums[i] = ops::kernels().sum_of_squares(data + i * piece, std::min(piece, count - i * piece));
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace

double gradient_norm(const std::vector<at::Tensor>& parameters, double norm_type) {
  const bool maximum = std::isinf(norm_type);
  double total = 0;
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.grad().defined()) continue;
    const at::Tensor values = values_of(parameter.grad());
    if (values.numel() == 0) continue;
    if (maximum) {
      const double largest = values.abs().max().item<double>();
      if (!(total >= largest)) total = largest;  // a NaN stays
    } else if (norm_type == 2.0) {
      total += sum_of_squares(values);
    } else {
      total += values.to(at::kDouble).abs().pow(norm_type).sum().item<double>();
    }
  }
  return maximum ? total : norm_type == 2.0 ? std::sqrt(total) : std::pow(total, 1.0 / norm_type);
}

double clip_factor(double norm, double max_norm) {
  const double factor = max_norm / (norm + 1e-6);
  return factor > 1.0 ? 1.0 : factor;
}

void scale_gradients_(const std::vector<at::Tensor>& parameters, double factor) {
  if (factor == 1.0) return;
  const torch::NoGradGuard no_grad;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) parameter.mutable_grad().mul_(factor);
  }
}

double clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm,
                       double norm_type) {
  const double norm = gradient_norm(parameters, norm_type);
  scale_gradients_(parameters, clip_factor(norm, max_norm));
  return norm;
}

void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value) {
  const torch::NoGradGuard no_grad;
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.grad().defined()) continue;
    if (parameter.grad().is_sparse()) {
      at::Tensor gradient = parameter.grad().coalesce();
      gradient.values().clamp_(-clip_value, clip_value);
      parameter.mutable_grad() = gradient;
    } else {
      parameter.mutable_grad().clamp_(-clip_value, clip_value);
    }
  }
}

}  // namespace hasten
