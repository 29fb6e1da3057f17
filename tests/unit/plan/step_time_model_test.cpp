// The model of a step's time: products, copies, and a program's report.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "device/host_traffic.h"
#include "hasten/machine/gpus.h"
#include "hasten/plan/plan.h"
#include "machine/host_links.h"
#include "plan/step_time_model.h"
#include "unit/code_of.h"
#include "unit/plan/planned_steps.h"

namespace plan_step_time_model_test {

using namespace hasten;
using namespace hasten::planned_steps;

TEST_CASE("plan: products of float16 are faster on a GPU that has no bfloat16") {
  const SmallModel model(/*width=*/512);
  const PlanOptions options{.step = {.model = model.file(),
                                     .length = 64,
                                     .arguments = {.per_device_train_batch_size = 256},
                                     .device = "cuda:t4"}};
  const anatomy::StepComparison comparison = compare_changes(options);
  CHECK(change_of(comparison, "fp16").cost.seconds < 0.7 * comparison.baseline.seconds);
}

TEST_CASE("plan: a step on a GPU takes the time that its report expects") {
  // The host is ahead of the kernels of the forward pass, so its time counts once for the step.
  anatomy::Report report;
  report.steps = 1;
  report.operations.resize(2);
  anatomy::Operation &forward = report.operations[0], &backward = report.operations[1];
  forward.phase = anatomy::Phase::forward;
  forward.kernel_seconds = 1;
  forward.host_seconds = 3;
  backward.phase = anatomy::Phase::backward;
  backward.kernel_seconds = 5;
  backward.host_seconds = 1;
  CHECK(reported_seconds(report) == doctest::Approx(6));
  CHECK(reported_seconds(report) == doctest::Approx(expected_step_time(report)->seconds));
  const SmallModel model;
  const PlanOptions options{.step = {.model = model.file(), .length = 64, .device = "cuda:t4"}};
  CHECK(compare_changes(options).baseline.seconds ==
        doctest::Approx(expected_step_time(estimate(options.step))->seconds));
}

TEST_CASE("plan: offloaded bytes take the time of the link") {
  const SmallModel model(/*width=*/256);
  PlanOptions options{.step = {.model = model.file(),
                               .length = 64,
                               .arguments = {.per_device_train_batch_size = 64},
                               .device = "cuda:t4"}};
  const auto seconds = [&](const char* name) {
    const anatomy::StepComparison comparison = compare_changes(options);
    const anatomy::StepChange effect = change_of(comparison, name);
    CHECK(effect.cost.bytes < comparison.baseline.bytes);
    CHECK(effect.exactness == Exactness::exact);
    return effect.cost.seconds - comparison.baseline.seconds;
  };
  // The gradients in float go to the host, and the weights go back to the device.
  const auto weights = 4.0 * static_cast<double>(estimate(options.step).memory.parameters);
  CHECK(seconds("offload_states") > weights / host_link_bytes_per_second(find_gpu("cuda:t4")) / 2);
  const double by_pcie = seconds("offload_activations");
  CHECK(by_pcie > 0);
  options.step.device = "cuda:gh200";
  CHECK(seconds("offload_activations") < by_pcie);  // NVLink-C2C
}

TEST_CASE("plan: the copies of a step are counted, and each activation returns once") {
  const SmallModel model(/*width=*/256);
  EstimateOptions step{.model = model.file(), .length = 64, .device = "cuda:a100-40gb"};
  step.arguments.per_device_train_batch_size = 64;
  step.arguments.optim = OptimizerName::sgd;  // has no sparse gradients
  using Purpose = HostTraffic::Purpose;
  {
    const HostTraffic traffic;
    const std::int64_t numbers = estimate(step).memory.parameters;
    CHECK(traffic.bytes(Purpose::activations).to_host == 0);
    CHECK(traffic.bytes(Purpose::optimizer_states).to_host == 0);
    step.arguments.offload_optimizer_states = true;
    estimate(step);
    CHECK(traffic.bytes(Purpose::optimizer_states).to_host == step.steps * 4 * numbers);
    CHECK(traffic.bytes(Purpose::optimizer_states).to_device == step.steps * 4 * numbers);
    CHECK(traffic.bytes(Purpose::activations).to_host == 0);
  }
  step.arguments.activation_offloading = true;
  const HostTraffic traffic;
  estimate(step);
  const HostTraffic::Bytes activations = traffic.bytes(Purpose::activations);
  CHECK(activations.to_host > 0);
  CHECK(activations.to_device == activations.to_host);
}

TEST_CASE("plan: a program's report has the time of the estimate that it was made of") {
  const SmallModel model;
  EstimateOptions step{.model = model.file(), .length = 64, .device = "cuda:v100-16gb"};
  step.arguments.fp16 = true;
  const anatomy::Report report = estimate(step);
  REQUIRE(report.half_is_float16);
  const StepCost cost = read_step_cost(to_json(report));
  CHECK(cost.bytes == needed_bytes(report.memory));
  CHECK(cost.seconds == doctest::Approx(reported_seconds(report)));
  CHECK(code_of([] { read_step_cost("{}"); }) == "plan.report");
}

}  // namespace plan_step_time_model_test
