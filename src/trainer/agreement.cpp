#include "trainer/agreement.h"

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <vector>

#include "hasten/accelerator.h"

namespace hasten {
namespace {

// The interval grows by at most this factor, because the first batch may be quick by chance.
constexpr std::int64_t kMaxIntervalGrowth = 4;

at::Tensor tensor_of(const std::vector<double>& values) { return at::tensor(values, at::kDouble); }

constexpr std::array kTotals = {&StepTotals::loss, &StepTotals::items, &StepTotals::tokens,
                                &StepTotals::flos};

std::vector<double> collect_field(const std::vector<StepTotals>& all, double StepTotals::*total) {
  std::vector<double> values;
  for (const StepTotals& each : all) values.push_back(each.*total);
  return values;
}

std::vector<double> values_of(const at::Tensor& tensor) {
  const at::Tensor values = tensor.contiguous();
  const double* const data = values.const_data_ptr<double>();
  return {data, data + values.numel()};
}

}  // namespace

StepTotals sum_over_virtual_ranks(const Accelerator& accelerator,
                                  const std::vector<StepTotals>& own) {
  StepTotals sums;
  for (const auto total : kTotals) sums.*total = accelerator.elastic_sum(collect_field(own, total));
  return sums;
}

// Each step of an evaluation has a batch for each process, in rank order.
StepTotals sum_of_batches(const Group& group, const std::vector<StepTotals>& own) {
  StepTotals sums;
  for (const auto total : kTotals) {
    const at::Tensor of_ranks = group.gather(tensor_of(collect_field(own, total)).unsqueeze(0));
    for (const double value : values_of(of_ranks.t())) sums.*total += value;
  }
  return sums;
}

StepTotals sum_over(const Group& group, StepTotals totals) {
  sum_in_place(group, {&totals.loss, &totals.items, &totals.tokens, &totals.flos});
  return totals;
}

void sum_in_place(const Group& group, const std::vector<double*>& counts) {
  if (group.size() == 1 || counts.empty()) return;
  std::vector<double> values;
  for (const double* count : counts) values.push_back(*count);
  const at::Tensor sums = group.reduce(tensor_of(values));
  for (std::size_t i = 0; i < counts.size(); ++i) *counts[i] = sums.const_data_ptr<double>()[i];
}

void merge_control(const Group& group, TrainerControl& control, bool& is_writing) {
  if (group.size() == 1) return;
  const std::array<bool*, 6> flags = {&control.should_training_stop, &control.should_epoch_stop,
                                      &control.should_save,          &control.should_evaluate,
                                      &control.should_log,           &is_writing};
  at::Tensor own = at::empty({static_cast<std::int64_t>(flags.size()) + 1}, at::kInt);
  for (std::size_t i = 0; i < flags.size(); ++i) own.data_ptr<int>()[i] = *flags[i];
  own.data_ptr<int>()[flags.size()] = control.stop_signal;
  const at::Tensor greatest = group.reduce(own, Reduction::max);
  for (std::size_t i = 0; i < flags.size(); ++i) *flags[i] = greatest.const_data_ptr<int>()[i] != 0;
  control.stop_signal = greatest.const_data_ptr<int>()[flags.size()];
}

std::int64_t next_interval(std::int64_t interval, double slowest, double wanted) {
  const double next = wanted * static_cast<double>(interval) / std::max(slowest, 1e-6);
  return static_cast<std::int64_t>(
      std::clamp(next, 1.0, static_cast<double>(kMaxIntervalGrowth * interval)));
}

void broadcast_metrics(const Group& group, Metrics& metrics) {
  if (group.size() == 1) return;
  std::vector<double> values;
  for (const auto& [name, value] : metrics) values.push_back(value);
  const at::Tensor of_main = group.broadcast(tensor_of(values));
  const double* value = of_main.const_data_ptr<double>();
  for (auto& [name, own] : metrics) own = *value++;
}

}  // namespace hasten
