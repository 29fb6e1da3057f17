#include "hasten/optim/gradients.h"

#include <ATen/OpMathType.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "device/device.h"
#include "ops/sum_of_squares.h"
#include "optim/coalesced.h"
#include "optim/distinct.h"

namespace hasten {
namespace {

// Returns the values of a gradient. In a sparse gradient, repeated rows are summed first.
at::Tensor values_of(const at::Tensor& gradient) {
  return gradient.is_sparse() ? coalesced(gradient).values() : gradient;
}

bool is_plain(const at::Tensor& x) {
  return x.device().is_cpu() && x.scalar_type() == at::kFloat && x.is_non_overlapping_and_dense();
}

// Returns the norm as one tensor, without copies of the size of the gradients. The norms are summed
// in `type`.
at::Tensor norm_of_norms(const std::vector<at::Tensor>& gradients, double norm_type,
                         at::ScalarType type) {
  std::map<at::ScalarType, std::vector<at::Tensor>> by_type;
  for (const at::Tensor& each : gradients) by_type[each.scalar_type()].push_back(each);
  std::vector<at::Tensor> norms;
  for (const auto& [of_type, same] : by_type) {
    for (const at::Tensor& each : at::_foreach_norm(same, norm_type, at::toOpMathType(of_type)))
      norms.push_back(each.to(gradients[0].device()));
  }
  return at::linalg_vector_norm(at::stack(norms).to(type), norm_type);
}

// Reads a single number from the device.
double two_norm_fallback(const std::vector<at::Tensor>& gradients) {
  return gradients.empty() ? 0 : norm_of_norms(gradients, 2, at::kDouble).item<double>();
}

double two_norm(const std::vector<at::Tensor>& gradients) {
  std::vector<at::Tensor> plain, others;
  for (const at::Tensor& values : gradients) (is_plain(values) ? plain : others).push_back(values);
  const double rest = two_norm_fallback(others);
  return std::sqrt(rest * rest + ops::sum_of_squares(plain));
}

double infinity_norm(const std::vector<at::Tensor>& gradients) {
  double out = 0;
  for (const at::Tensor& values : gradients) {
    const double here = values.abs().max().item<double>();
    if (std::isnan(here)) return here;
    out = std::max(out, here);
  }
  return out;
}

double power_norm(const std::vector<at::Tensor>& gradients, double power) {
  double total = 0;
  for (const at::Tensor& values : gradients)
    total += values.to(at::kDouble).abs().pow(power).sum().item<double>();
  return std::pow(total, 1.0 / power);
}

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : distinct(parameters)) {
    if (!parameter.grad().defined()) continue;
    const at::Tensor values = values_of(parameter.grad());
    if (values.numel() != 0) gradients.push_back(values);
  }
  return gradients;
}

bool is_reading_deferred(const std::vector<at::Tensor>& parameters) {
  return !parameters.empty() && device_of(parameters.front().device()).traits().defers_scalar_reads;
}

// Multiplies sparse gradients one by one, and all dense ones in one call. A sparse gradient becomes
// a product of its own: if the rows of two tables are added, autograd gives both tables the same
// numbers, which would be multiplied twice. The other table may belong to another optimizer.
template <class Factor>
void multiply_gradients(const std::vector<at::Tensor>& parameters, const Factor& factor) {
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> dense;
  for (const at::Tensor& parameter : distinct(parameters)) {
    if (!parameter.grad().defined()) continue;
    if (parameter.grad().is_sparse()) {
      parameter.mutable_grad() = parameter.grad().mul(factor);
    } else {
      dense.push_back(parameter.mutable_grad());
    }
  }
  if (!dense.empty()) at::_foreach_mul_(dense, factor);
}

}  // namespace

double gradient_norm(const std::vector<at::Tensor>& parameters, double norm_type) {
  const torch::NoGradGuard no_grad;
  if (is_reading_deferred(parameters))
    return DeferredScalar(gradient_norm_on_device(parameters, norm_type));
  const std::vector<at::Tensor> gradients = gradients_of(parameters);
  if (norm_type == 2.0) return two_norm(gradients);
  return std::isinf(norm_type) ? infinity_norm(gradients) : power_norm(gradients, norm_type);
}

at::Tensor gradient_norm_on_device(const std::vector<at::Tensor>& parameters, double norm_type) {
  const torch::NoGradGuard no_grad;
  const std::vector<at::Tensor> gradients = gradients_of(parameters);
  if (gradients.empty()) return at::zeros({});
  const bool has_double = device_of(gradients[0].device()).traits().has_double;
  return norm_of_norms(gradients, norm_type, has_double ? at::kDouble : at::kFloat);
}

double clip_factor(double norm, double max_norm) {
  const double factor = max_norm / (norm + 1e-6);
  return factor > 1.0 ? 1.0 : factor;
}

at::Tensor clip_factor(const at::Tensor& norm, double max_norm) {
  return (norm + 1e-6).reciprocal().mul(max_norm).clamp_max(1.0).to(at::kFloat);
}

void scale_gradients_(const std::vector<at::Tensor>& parameters, double factor) {
  if (factor != 1.0) multiply_gradients(parameters, at::Scalar(factor));
}

void scale_gradients_(const std::vector<at::Tensor>& parameters, const at::Tensor& factor) {
  multiply_gradients(parameters, factor);
}

DeferredScalar clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm,
                               double norm_type) {
  if (is_reading_deferred(parameters)) {
    const at::Tensor norm = gradient_norm_on_device(parameters, norm_type);
    scale_gradients_(parameters, clip_factor(norm, max_norm));
    return DeferredScalar(norm);
  }
  const double norm = gradient_norm(parameters, norm_type);
  scale_gradients_(parameters, clip_factor(norm, max_norm));
  return norm;
}

void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value) {
  const torch::NoGradGuard no_grad;
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.grad().defined()) continue;
    if (parameter.grad().is_sparse()) {
      const at::Tensor gradient = coalesced(parameter.grad()).clone();  // see multiply_gradients
      gradient.values().clamp_(-clip_value, clip_value);
      parameter.mutable_grad() = gradient;
    } else {
      parameter.mutable_grad().clamp_(-clip_value, clip_value);
    }
  }
}

}  // namespace hasten
