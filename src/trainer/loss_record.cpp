#include "trainer/loss_record.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "hasten/optim/gradients.h"

namespace hasten {

LossRecord::LossRecord(const TrainingArguments& args, Group group, at::Device device, bool deferred,
                       Listener listener)
    : filter_(args.logging_nan_inf_filter),
      deferred_(deferred),
      group_(std::move(group)),
      device_(device),
      listener_(std::move(listener)) {
  if (!deferred_) return;
  for (at::Tensor* each : {&open_, &finite_sum_, &sum_, &nonfinite_, &first_nonfinite_})
    *each = at::zeros({}, at::kFloat).to(device_);
}

void LossRecord::add(const at::Tensor& loss, double items) {
  if (!deferred_) {
    step_sum_ += loss.item<double>() * items;
    return;
  }
  const torch::NoGradGuard no_grad;
  open_ = open_ + loss.detach().to(at::kFloat) * items;
}

void LossRecord::close(const StepTotals& of_all, std::int64_t step) {
  if (!deferred_) {
    step_sum_ = 0;
    latest_ = of_all.items > 0 ? of_all.loss / of_all.items : 0;
    return count(latest_, step);
  }
  const torch::NoGradGuard no_grad;
  // Runs the same operations in each step, so that no step needs a program of its own.
  const at::Tensor share = open_ * (of_all.items > 0 ? 1.0 / of_all.items : 0.0);
  const at::Tensor is_finite = share.abs().lt(std::numeric_limits<float>::infinity()),
                   is_bad = is_finite.logical_not().to(at::kFloat);
  const at::Tensor is_first = is_bad * nonfinite_.eq(0).to(at::kFloat);
  first_nonfinite_ = first_nonfinite_ + is_first * static_cast<double>(step);
  nonfinite_ = nonfinite_ + is_bad;
  finite_sum_ = finite_sum_ + at::where(is_finite, share, at::zeros_like(share));
  sum_ = sum_ + share;
  open_ = at::zeros_like(open_);
  ++deferred_steps_;
  if (group_.size() > 1) shares_.push_back({.step = step, .loss = share});
}

double LossRecord::open_sum() const {
  if (!deferred_) return step_sum_;
  return DeferredScalar(open_);
}

void LossRecord::restore_open_sum(double sum) {
  if (!deferred_) {
    step_sum_ = sum;
  } else {
    open_ = at::full({}, sum, at::kFloat).to(device_);
  }
}

void LossRecord::count(double loss, std::int64_t step) {
  if (std::isfinite(loss)) {
    for (LossSum* each : {&log_, &run_}) {
      each->sum += loss;
      ++each->finite;
    }
    return;
  }
  ++log_.nonfinite;
  ++run_.nonfinite;
  if (!filter_) log_.sum += loss;
  listener_({.step = step, .count = 1, .loss = loss});
}

// Reads one by one: a program that combines the values would be compiled for the first log.
LossRecord::DeferredSums LossRecord::own_deferred() const {
  const double bad = DeferredScalar(nonfinite_), first = DeferredScalar(first_nonfinite_);
  return {.finite = DeferredScalar(finite_sum_),
          .all = DeferredScalar(sum_),
          .nonfinite = static_cast<std::int64_t>(bad),
          .first_nonfinite = static_cast<std::int64_t>(first)};
}

// Sums the processes' shares of every step's loss, step by step if one is not finite.
LossRecord::DeferredSums LossRecord::total_deferred() const {
  DeferredSums sums = own_deferred();
  if (group_.size() == 1) return sums;
  const auto bad = static_cast<double>(sums.nonfinite);
  if (group_.reduce(at::scalar_tensor(bad, at::kDouble), Reduction::max).item<double>() > 0)
    return deferred_by_step();
  sum_in_place(group_, {&sums.finite, &sums.all});
  return sums;
}

LossRecord::DeferredSums LossRecord::deferred_by_step() const {
  std::vector<double> own;
  for (const Share& each : shares_) own.push_back(DeferredScalar(each.loss));
  const at::Tensor losses = group_.reduce(at::tensor(own, at::kDouble));
  DeferredSums sums;
  for (std::size_t i = 0; i < shares_.size(); ++i) {
    const double loss = losses.const_data_ptr<double>()[i];
    sums.all += loss;
    if (std::isfinite(loss)) {
      sums.finite += loss;
    } else if (sums.nonfinite++ == 0) {
      sums.first_nonfinite = shares_[i].step;
    }
  }
  return sums;
}

void LossRecord::read_deferred() {
  if (deferred_steps_ == 0) return;
  const DeferredSums sums = total_deferred();
  const std::int64_t finite = std::exchange(deferred_steps_, 0) - sums.nonfinite;
  log_.sum += filter_ ? sums.finite : sums.all;
  run_.sum += sums.finite;
  for (LossSum* each : {&log_, &run_}) {
    each->finite += finite;
    each->nonfinite += sums.nonfinite;
  }
  latest_ = finite > 0 ? sums.finite / static_cast<double>(finite) : std::nan("");
  for (at::Tensor* each : {&finite_sum_, &sum_, &nonfinite_, &first_nonfinite_})
    *each = at::zeros_like(*each);
  shares_.clear();
  if (sums.nonfinite > 0)
    listener_({.step = sums.first_nonfinite, .count = sums.nonfinite, .loss = sums.all});
}

LossRecord::Logged LossRecord::take_since_log(std::int64_t step) {
  read_deferred();
  const std::int64_t steps = step - std::exchange(last_logged_, step);
  const LossSum since = std::exchange(log_, {});
  const std::int64_t of = filter_ ? std::max<std::int64_t>(since.finite, 1) : steps;
  const bool none_finite = since.finite == 0 && since.nonfinite > 0;
  return {.loss = none_finite ? std::nan("") : since.sum / static_cast<double>(of),
          .nonfinite = since.nonfinite};
}

double LossRecord::mean() {
  read_deferred();
  return run_.sum / static_cast<double>(std::max<std::int64_t>(1, run_.finite));
}

LossPosition LossRecord::position() {
  read_deferred();
  return {.of_run = run_, .since_log = log_, .last_logged_step = last_logged_};
}

void LossRecord::restore(const LossPosition& position) {
  run_ = position.of_run;
  log_ = position.since_log;
  last_logged_ = position.last_logged_step;
}

}  // namespace hasten
