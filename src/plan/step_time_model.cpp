#include "plan/step_time_model.h"

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "anatomy/expected_step.h"
#include "anatomy/roofline.h"
#include "base/seconds.h"
#include "device/host_traffic.h"
#include "hasten/machine/gpus.h"
#include "machine/host_links.h"

namespace hasten {
namespace {

using anatomy::CollectedCall;
using anatomy::OperationGroup;
using anatomy::Phase;

// Returns the mean seconds of one call in a chain of operators and its backward pass.
template <class Operator>
double seconds_of_chain(Operator op) {
  const at::Tensor x = at::ones({1, 1}).requires_grad_();
  at::Tensor y = x;
  constexpr int kCalls = 400;
  const double start = anatomy::work_clock_seconds();
  for (int i = 0; i < kCalls; ++i) y = op(y, x);
  y.backward();
  return (anatomy::work_clock_seconds() - start) / (2 * kCalls);
}

// Returns the share of its roof that an operator usually reaches. It is for a machine where only
// the roofs are known, which come from large products and copies.
double typical_roofline_share(OperationGroup group) {
  return group == OperationGroup::tensor_contraction ? 0.7 : 0.75;
}

// The share of its rate that a link reaches for copies from and to pinned memory.
constexpr double kLinkShare = 0.8;
// The bytes per second that an optimizer reads and writes when it steps in host memory: the memory
// bandwidth of a server divided by the number of its GPUs.
constexpr double kHostBytesPerSecond = 50e9;

using anatomy::PhaseTimes;
anatomy::PhaseTime& time_of(PhaseTimes& all, Phase phase) {
  return all[static_cast<std::size_t>(phase)];
}

// Returns the times if every operator runs at a usual share of its roof, or zeros if the roofs are
// not known.
PhaseTimes roofline_phases(const anatomy::Report& report) {
  PhaseTimes all{};
  if (report.roofs.flops_per_second <= 0 || report.steps == 0) return all;
  for (const anatomy::Operation& each : report.operations) {
    if (each.group == OperationGroup::none) continue;
    const double roofline = std::max(compute_seconds(each, report), memory_seconds(each, report));
    time_of(all, each.phase).kernels +=
        roofline / typical_roofline_share(each.group) / static_cast<double>(report.steps);
  }
  return all;
}

// Returns the expected times on a GPU if the report has them, or else the times from the roofs.
PhaseTimes phase_times(const anatomy::Report& report) {
  const PhaseTimes expected = anatomy::expected_phases(report);
  return step_time_of(expected).kernels > 0 ? expected : roofline_phases(report);
}

// Returns the bytes that the operators of an optimizer read and write in a step, without copies.
double optimizer_bytes(const anatomy::Report& report) {
  double bytes = 0;
  for (const anatomy::Operation& each : report.operations) {
    if (each.phase == Phase::optimizer && each.name != "aten::copy_")
      bytes += static_cast<double>(each.bytes_read + each.bytes_written - each.outside.bytes);
  }
  return bytes / static_cast<double>(report.steps);
}

// Returns the time of a step on a GPU. Copies of activations run during the passes. A step of the
// optimizer in host memory begins after the passes, and copies gradients and weights meanwhile.
double gpu_seconds(const anatomy::Report& report, const HostTraffic& traffic, const Gpu& gpu) {
  PhaseTimes all = phase_times(report);
  const double link =
      kLinkShare * host_link_bytes_per_second(gpu) * static_cast<double>(report.steps);
  const auto copying = [&](std::int64_t bytes) { return static_cast<double>(bytes) / link; };
  const auto activations = traffic.bytes(HostTraffic::Purpose::activations),
             states = traffic.bytes(HostTraffic::Purpose::optimizer_states);
  double &forward = time_of(all, Phase::forward).kernels,
         &backward = time_of(all, Phase::backward).kernels;
  forward = std::max(forward, copying(activations.to_host));
  backward = std::max(backward, copying(activations.to_device));
  if (states.to_host == 0) return step_time_of(all).seconds();
  time_of(all, Phase::optimizer) = {};
  return step_time_of(all).seconds() + std::max({copying(states.to_host), copying(states.to_device),
                                                 optimizer_bytes(report) / kHostBytesPerSecond});
}

}  // namespace

double reported_seconds(const anatomy::Report& report) {
  return step_time_of(phase_times(report)).seconds();
}

double StepTimeModel::roofline(const CollectedCall& call) const {
  const bool has_half_roof = call.half && roofs_.bf16_flops_per_second > 0;
  const double rate = has_half_roof ? roofs_.bf16_flops_per_second : roofs_.flops_per_second;
  return std::max(call.flops / rate, call.bytes / roofs_.bytes_per_second);
}

// Measures the calls with the longest roofline times, until the budget is used up.
void StepTimeModel::measure(const anatomy::CallCollector& calls) {
  std::vector<std::pair<double, const std::pair<const std::string, CollectedCall>*>> unknown;
  for (const auto& each : calls.calls()) {
    if (measured_.count(each.first) == 0)
      unknown.emplace_back(static_cast<double>(each.second.count) * roofline(each.second), &each);
  }
  std::sort(unknown.begin(), unknown.end(),
            [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [weight, each] : unknown) {
    const auto& [signature, call] = *each;
    const double expected = 5 * roofline(call);  // three calls and their operands
    if (expected > budget_) continue;
    const auto start = std::chrono::steady_clock::now();
    const double seconds = anatomy::measured_seconds(call, 0.002);
    budget_ -= seconds_since(start);
    if (seconds <= 0) continue;
    measured_[signature] = seconds;
    Efficiency& group = groups_[static_cast<std::size_t>(call.group)];
    const double count = static_cast<double>(call.count);
    group.seconds += count * seconds;
    group.roofline += count * roofline(call);
  }
}

double StepTimeModel::cpu_seconds(const anatomy::CallCollector& calls,
                                  const anatomy::Report& report) {
  if (roofs_.flops_per_second <= 0) {
    roofs_ = anatomy::measure_roofs();
    call_overhead_ =
        seconds_of_chain([](const at::Tensor& y, const at::Tensor& x) { return y + x; });
    view_seconds_ =
        seconds_of_chain([](const at::Tensor& y, const at::Tensor&) { return y.transpose(0, 1); });
  }
  measure(calls);
  double seconds = 0;
  for (const anatomy::Operation& each : report.operations) {
    if (each.group == OperationGroup::none)
      seconds += static_cast<double>(each.count) * view_seconds_;
  }
  for (const auto& [signature, call] : calls.calls()) {
    const auto known = measured_.find(signature);
    const Efficiency& group = groups_[static_cast<std::size_t>(call.group)];
    const double slower = group.roofline > 0 ? group.seconds / group.roofline : 1.5;
    const double once = known != measured_.end() ? known->second : slower * roofline(call);
    seconds += static_cast<double>(call.count) * (once + call_overhead_);
  }
  return seconds / static_cast<double>(std::max<std::int64_t>(1, report.steps));
}

StepCost StepTimeModel::predict(const EstimateOptions& options) {
  if (options.device != "cpu") {
    const HostTraffic traffic;
    const anatomy::Report report = estimate(options);
    return {.bytes = needed_bytes(report.memory),
            .seconds = gpu_seconds(report, traffic, find_gpu(options.device))};
  }
  const anatomy::CallCollector calls;
  const anatomy::Report report = estimate(options);
  return {.bytes = needed_bytes(report.memory), .seconds = cpu_seconds(calls, report)};
}

}  // namespace hasten
