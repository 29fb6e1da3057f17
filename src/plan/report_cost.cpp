// Reads the cost of a step from an anatomy's JSON.
#include <nlohmann/json.hpp>

#include "hasten/base/error.h"
#include "hasten/plan/plan.h"
#include "plan/step_time_model.h"

namespace hasten {
namespace {

using Json = nlohmann::ordered_json;

anatomy::Operation operation_of(const Json& json) {
  anatomy::Operation out;
  out.kernel_seconds = json.at("kernel_seconds");
  out.host_seconds = json.at("host_seconds");
  out.phase = from_name<anatomy::Phase>(json.at("phase").get<std::string>())
                  .value_or(anatomy::Phase::other);
  out.group = from_name<anatomy::OperationGroup>(json.at("group").get<std::string>())
                  .value_or(anatomy::OperationGroup::element_wise);
  out.count = json.at("count");
  out.flops = json.at("flops");
  out.half_flops = json.at("half_flops");
  out.bytes_read = json.at("bytes_read");
  out.bytes_written = json.at("bytes_written");
  const Json& outside = json.at("outside");
  out.outside = {.flops = outside.at("flops"),
                 .half_flops = outside.at("half_flops"),
                 .bytes = outside.at("bytes")};
  return out;
}

anatomy::Report report_of(const Json& json) {
  anatomy::Report report;
  report.steps = json.at("steps");
  const Json& memory = json.at("memory");
  report.memory.peak = memory.at("peak");
  if (memory.contains("gpu")) {
    report.memory.gpu = anatomy::GpuMemory{.context = memory.at("gpu").at("context"),
                                           .reserved = memory.at("gpu").at("reserved")};
  }
  for (const Json& each : json.at("operations")) report.operations.push_back(operation_of(each));
  report.half_is_float16 = json.at("half_is_float16");
  if (json.contains("roofs")) {
    const Json& roofs = json.at("roofs");
    report.roofs = {.flops_per_second = roofs.at("flops_per_second"),
                    .bf16_flops_per_second = roofs.at("bf16_flops_per_second"),
                    .fp16_flops_per_second = roofs.at("fp16_flops_per_second"),
                    .tf32_flops_per_second = roofs.at("tf32_flops_per_second"),
                    .bytes_per_second = roofs.at("bytes_per_second")};
  }
  return report;
}

const anatomy::Roofs& machine_roofs() {
  static const anatomy::Roofs roofs = anatomy::measure_roofs();
  return roofs;
}

}  // namespace

StepCost read_step_cost(const std::string& report_json) {
  try {
    anatomy::Report report = report_of(Json::parse(report_json));
    if (report.roofs.flops_per_second <= 0) report.roofs = machine_roofs();
    return {.bytes = needed_bytes(report.memory), .seconds = reported_seconds(report)};
  } catch (const Json::exception& error) {
    throw DataError("plan.report", {.what = "the anatomy of a program",
                                    .got = error.what(),
                                    .expected = "the JSON of hasten estimate"});
  }
}

}  // namespace hasten
