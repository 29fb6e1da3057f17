// File: optim/muon_step.h (internal)
// The step of Muon for the matrices of a group. Muon and MuonAdamW share it.
//
//   muon_step(options, entries);
//
// `Entries` is StatefulOptimizer::Entries. Thread rule: that of the optimizer.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/optim/detail/muon.h"

namespace hasten {

// Throws UsageError "optim.not-a-matrix" unless the parameter has two dimensions.
inline void check_is_matrix(const char* optimizer, const at::Tensor& parameter) {
  if (parameter.dim() == 2) return;
  throw UsageError("optim.not-a-matrix",
                   {.what = c10::str("hasten::", optimizer, ", a parameter"),
                    .got = c10::str("shape ", parameter.sizes()),
                    .expected = "two dimensions",
                    .hint = "give other parameters to another optimizer, such as hasten::AdamW"});
}

// Brings the singular values of a matrix close to 1 with a quintic Newton-Schulz iteration.
inline at::Tensor nearly_orthogonal(const at::Tensor& matrix, const MuonOptions& options) {
  const double a = options.ns_coefficients()[0], b = options.ns_coefficients()[1],
               c = options.ns_coefficients()[2];
  const bool is_tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = matrix.to(at::kBFloat16);
  if (is_tall) x = x.t();
  x = x / x.norm().clamp_min(options.eps());  // the spectral norm is then at most 1
  for (std::int64_t i = 0; i < options.ns_steps(); ++i) {
    const at::Tensor gram = x.matmul(x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, b, c), x, a);
  }
  return is_tall ? x.t() : x;
}

inline double muon_rate(const MuonOptions& options, const at::Tensor& matrix) {
  const auto rows = static_cast<double>(matrix.size(0)),
             columns = static_cast<double>(matrix.size(1));
  return options.lr() * (options.adjust_lr_fn() == "match_rms_adamw"
                             ? 0.2 * std::sqrt(std::max(rows, columns))
                             : std::sqrt(std::max(1.0, rows / columns)));
}

inline constexpr const char* kMomentumBuffer = "momentum_buffer";  // the state of muon_step()

template <class Entries>
void muon_step(const MuonOptions& options, const Entries& entries) {
  const std::vector<at::Tensor> averages = entries.state(kMomentumBuffer);
  at::_foreach_lerp_(averages, entries.gradients, 1 - options.momentum());
  entries.decay(options);
  for (std::size_t i = 0; i < averages.size(); ++i) {
    const at::Tensor update = options.nesterov()
                                  ? entries.gradients[i].lerp(averages[i], options.momentum())
                                  : averages[i];
    entries.parameters[i].sub_(nearly_orthogonal(update, options),
                               muon_rate(options, entries.parameters[i]));
  }
}

}  // namespace hasten
