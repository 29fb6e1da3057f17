#include "trainer/loss_record.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace hasten {
namespace {

double mean_of(double sum, double items) { return items > 0 ? sum / items : 0; }

}  // namespace

LossRecord::LossRecord(const TrainingArguments& args, Group group, at::Device device,
                       LossReading reading, Listener listener, bool repeats)
    : filter_(args.logging_nan_inf_filter),
      reading_(reading),
      group_(std::move(group)),
      listener_(std::move(listener)) {
  if (reading_ != LossReading::each_batch)
    sums_ = repeats ? make_graph_step_sums(device) : make_step_sums(device);
}

void LossRecord::add(const at::Tensor& loss, double items) {
  if (sums_) {
    sums_->add(loss, items);
  } else {
    step_sum_ += loss.item<double>() * items;
  }
}

double LossRecord::step_sum() const { return reading_ == LossReading::at_logs ? 0 : open_sum(); }

double LossRecord::open_sum() const { return sums_ ? sums_->open() : step_sum_; }

void LossRecord::restore_open_sum(double sum) {
  if (sums_) {
    sums_->set_open(sum);
  } else {
    step_sum_ = sum;
  }
}

void LossRecord::close(const StepTotals& totals, std::int64_t step) {
  if (reading_ == LossReading::at_logs) {
    sums_->close();
    closed_.push_back({.step = step, .items = totals.items});
    if (std::ssize(closed_) == StepSums::kCapacity) read();
    return;
  }
  restore_open_sum(0);
  latest_ = mean_of(totals.loss, totals.items);
  if (!count(latest_)) listener_({.step = step, .count = 1, .loss = latest_});
}

bool LossRecord::count(double loss) {
  const bool is_finite = std::isfinite(loss);
  for (LossSum* each : {&log_, &run_}) {
    if (is_finite || !filter_) each->sum += loss;
    ++(is_finite ? each->finite : each->nonfinite);
  }
  return is_finite;
}

std::vector<double> LossRecord::sum_over_ranks(const std::vector<double>& own) const {
  if (group_.size() == 1) return own;
  const at::Tensor sums = group_.reduce(at::tensor(own, at::kDouble)).contiguous();
  const double* const first = sums.const_data_ptr<double>();
  return {first, first + sums.numel()};
}

double LossRecord::read(const DeferredScalar& extra) {
  if (closed_.empty()) return extra.value();
  const StepSums::Result taken = sums_->take(extra);
  const std::vector<double> sums = sum_over_ranks(taken.sums);
  const std::vector<ClosedStep> steps = std::exchange(closed_, {});
  NonfiniteLosses bad{.step = 0, .count = 0, .loss = 0};
  for (std::size_t i = 0; i < steps.size(); ++i) {
    latest_ = mean_of(sums[i], steps[i].items);
    if (!count(latest_) && bad.count++ == 0) {
      bad.step = steps[i].step;
      bad.loss = latest_;
    }
  }
  if (bad.count > 0) listener_(bad);
  return taken.extra;
}

double LossRecord::read_latest() {
  read();
  return latest_;
}

LossRecord::LoggedLosses LossRecord::take_since_log(std::int64_t step,
                                                    const DeferredScalar& grad_norm) {
  const double norm = read(grad_norm);
  const std::int64_t steps = step - std::exchange(last_logged_, step);
  const LossSum since = std::exchange(log_, {});
  const std::int64_t of = filter_ ? std::max<std::int64_t>(since.finite, 1) : steps;
  const bool none_finite = since.finite == 0 && since.nonfinite > 0;
  return {.loss = none_finite ? std::nan("") : since.sum / static_cast<double>(of),
          .nonfinite = since.nonfinite,
          .grad_norm = norm};
}

double LossRecord::mean() {
  read();
  const std::int64_t steps = filter_ ? run_.finite : run_.finite + run_.nonfinite;
  if (steps == 0 && run_.nonfinite > 0) return std::nan("");
  return run_.sum / static_cast<double>(std::max<std::int64_t>(1, steps));
}

LossPosition LossRecord::position() {
  read();
  return {.of_run = run_, .since_log = log_, .last_logged_step = last_logged_};
}

void LossRecord::restore(const LossPosition& position) {
  run_ = position.of_run;
  log_ = position.since_log;
  last_logged_ = position.last_logged_step;
}

std::vector<at::Tensor> LossRecord::on_device() const {
  return sums_ ? sums_->tensors() : std::vector<at::Tensor>{};
}

}  // namespace hasten
