#include "hasten/optim/muon.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "optim/option_range.h"

namespace hasten {

void MuonOptions::check() const {
  ParamGroupOptions::check();
  require_at_least_0(kName, "momentum", momentum_);
  require_at_least_0(kName, "eps", eps_);
  require_option(ns_steps_ >= 0 && ns_steps_ < 100, kName, "ns_steps", ns_steps_, "0 to 99");
  require_option(ns_coefficients_.size() == 3, kName, "ns_coefficients",
                 str(ns_coefficients_.size(), " numbers"), "3 numbers");
  require_option(adjust_lr_fn_ == "original" || adjust_lr_fn_ == "match_rms_adamw", kName,
                 "adjust_lr_fn", adjust_lr_fn_, "original or match_rms_adamw");
}

void MuonOptions::visit(OptionVisitor& option) {
  option("momentum", momentum_);
  option("nesterov", nesterov_);
  option("ns_coefficients", ns_coefficients_);
  option("eps", eps_);
  option("ns_steps", ns_steps_);
  option("adjust_lr_fn", adjust_lr_fn_);
}

namespace {

// Brings the singular values of a matrix near 1 by a quintic iteration of Newton and Schulz.
at::Tensor nearly_orthogonal(const at::Tensor& matrix, const MuonOptions& options) {
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

double lr_for(const MuonOptions& options, const at::Tensor& matrix) {
  const auto rows = static_cast<double>(matrix.size(0)),
             columns = static_cast<double>(matrix.size(1));
  return options.lr() * (options.adjust_lr_fn() == "match_rms_adamw"
                             ? 0.2 * std::sqrt(std::max(rows, columns))
                             : std::sqrt(std::max(1.0, rows / columns)));
}

}  // namespace

void Muon::check_parameter(const at::Tensor& parameter) const {
  if (parameter.dim() == 2) return;
  throw UsageError("optim.not-a-matrix",
                   {.what = "hasten::Muon, a parameter",
                    .got = c10::str("shape ", parameter.sizes()),
                    .expected = "two dimensions",
                    .hint = "give other parameters to another optimizer, such as hasten::AdamW"});
}

void Muon::update(const MuonOptions& options, const Entries& entries) {
  const std::vector<at::Tensor> averages = entries.state("momentum_buffer");
  at::_foreach_lerp_(averages, entries.gradients, 1 - options.momentum());
  entries.decay(options);
  for (std::size_t i = 0; i < averages.size(); ++i) {
    const at::Tensor update = options.nesterov()
                                  ? entries.gradients[i].lerp(averages[i], options.momentum())
                                  : averages[i];
    entries.parameters[i].sub_(nearly_orthogonal(update, options),
                               lr_for(options, entries.parameters[i]));
  }
}

}  // namespace hasten
