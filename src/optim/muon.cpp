#include "hasten/optim/detail/muon.h"

#include "optim/muon_step.h"
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

void Muon::check_parameter(const at::Tensor& parameter) const {
  check_is_matrix(MuonOptions::kName, parameter);
}

void Muon::read(const MuonOptions&, const Entries& entries) const {
  entries.state(kMomentumBuffer);
}

void Muon::update(const MuonOptions& options, const Entries& entries) {
  muon_step(options, entries);
}

}  // namespace hasten
