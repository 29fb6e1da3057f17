#include "plan/step_time.h"

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace hasten {
namespace {

using Steady = std::chrono::steady_clock;
using anatomy::CollectedCall;
using anatomy::OperationGroup;

double seconds_since(Steady::time_point start) {
  return std::chrono::duration<double>(Steady::now() - start).count();
}

// The time that LibTorch's dispatcher and autograd add to an operator, in seconds.
double measure_call_overhead() {
  const at::Tensor x = at::ones({1}).requires_grad_();
  at::Tensor y = x;
  constexpr int kCalls = 400;
  const double start = anatomy::working_seconds();
  for (int i = 0; i < kCalls; ++i) y = y + x;
  y.backward();
  return (anatomy::working_seconds() - start) / (2 * kCalls);
}

// The share of its roof that an operator of a GPU reaches. The roofs are those of large products
// and copies; 71 % of the step's roofline is what docs/anatomy.md finds for a published step.
double gpu_efficiency(OperationGroup group) {
  return group == OperationGroup::tensor_contraction ? 0.7 : 0.75;
}

// The time to start a kernel, during which a GPU may wait.
constexpr double kKernelStart = 4e-6;

}  // namespace

double roofline_seconds(const anatomy::Report& report) {
  const anatomy::Roofs& roofs = report.roofs;
  if (roofs.flops_per_second <= 0 || report.steps == 0) return 0;
  const double half_roof =
      roofs.bf16_flops_per_second > 0 ? roofs.bf16_flops_per_second : roofs.flops_per_second;
  double seconds = 0;
  for (const anatomy::Operation& each : report.operations) {
    if (each.group == OperationGroup::none) continue;
    const double half = each.half_flops - each.outside.half_flops;
    const double full = each.flops - each.outside.flops - half;
    const double computing = full / roofs.flops_per_second + half / half_roof;
    const double moving =
        static_cast<double>(each.bytes_read + each.bytes_written - each.outside.bytes) /
        roofs.bytes_per_second;
    seconds += std::max(std::max(computing, moving) / gpu_efficiency(each.group),
                        kKernelStart * static_cast<double>(each.count));
  }
  return seconds / static_cast<double>(report.steps);
}

double StepTime::roofline(const CollectedCall& call) const {
  return std::max(call.flops / roofs_.flops_per_second, call.bytes / roofs_.bytes_per_second);
}

// Measures the calls that take longest, by the roofline, while the budget lasts.
void StepTime::measure(const anatomy::CallCollector& calls) {
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
    const auto start = Steady::now();
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

double StepTime::cpu_seconds(const anatomy::CallCollector& calls, std::int64_t steps) {
  if (roofs_.flops_per_second <= 0) {
    roofs_ = anatomy::measure_roofs();
    call_overhead_ = measure_call_overhead();
  }
  measure(calls);
  double seconds = 0;
  for (const auto& [signature, call] : calls.calls()) {
    const auto known = measured_.find(signature);
    const Efficiency& group = groups_[static_cast<std::size_t>(call.group)];
    const double slower = group.roofline > 0 ? group.seconds / group.roofline : 1.5;
    const double once = known != measured_.end() ? known->second : slower * roofline(call);
    seconds += static_cast<double>(call.count) * (once + call_overhead_);
  }
  return seconds / static_cast<double>(steps);
}

StepNeeds StepTime::predict(const EstimateOptions& options) {
  if (options.device != "cpu") {
    const anatomy::Report report = estimate(options);
    return {.bytes = needed_bytes(report.memory), .seconds = roofline_seconds(report)};
  }
  const anatomy::CallCollector calls;
  const anatomy::Report report = estimate(options);
  return {.bytes = needed_bytes(report.memory),
          .seconds = cpu_seconds(calls, std::max<std::int64_t>(1, report.steps))};
}

}  // namespace hasten
