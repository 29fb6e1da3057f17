// Writes the report as JSON. The keys are the names of the fields.
#include "anatomy/comparison_text.h"
#include "hasten/anatomy/report.h"

namespace hasten::anatomy {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const ComponentBytes& bytes) {
  Json out = Json::object();
  for (std::size_t i = 0; i < kComponents; ++i)
    out[std::string(name_of(static_cast<Component>(i)))] = bytes[i];
  return out;
}

Json json_of(const OperationTotal& total) {
  return {{"count", total.count},
          {"flops", total.flops},
          {"seconds", total.seconds},
          {"bytes_read", total.bytes_read},
          {"bytes_written", total.bytes_written}};
}

// Returns the textbook bytes per parameter. A component without a textbook text is left out;
// `bytes` is null if there is no single figure.
Json json_of_textbook(const Memory& memory) {
  Json out = Json::object();
  for (std::size_t i = 0; i < kComponents; ++i) {
    const auto component = static_cast<Component>(i);
    const Textbook each = textbook(memory, component);
    if (each.text.empty()) continue;
    out[std::string(name_of(component))] = {{"bytes", nullptr}, {"text", each.text}};
    if (each.bytes) out[std::string(name_of(component))]["bytes"] = *each.bytes;
  }
  return out;
}

Json json_of(const OutOfMemory& failure) {
  Json out = {{"requested", failure.requested},  {"component", name_of(failure.component)},
              {"phase", name_of(failure.phase)}, {"module", failure.module},
              {"operation", failure.operation},  {"held", json_of(failure.allocated)}};
  for (const ModuleMemory& each : failure.modules)
    out["modules"].push_back({{"module", each.module}, {"held", json_of(each.at_peak)}});
  return out;
}

Json json_of(const Memory& memory) {
  Json out = {{"known", memory.known},
              {"peak", memory.peak},
              {"at_peak", json_of(memory.at_peak)},
              {"max_bytes", json_of(memory.max_bytes)},
              {"peak_phase", name_of(memory.peak_phase)},
              {"peak_operation", memory.peak_operation},
              {"peak_module", memory.peak_module},
              {"peak_inside_kernel", memory.peak_inside_kernel},
              {"before", memory.before},
              {"after", memory.after},
              {"parameters", memory.parameters},
              {"trained_parameters", memory.trained_parameters},
              {"textbook", json_of_textbook(memory)}};
  for (std::size_t i = 0; i < memory.peak_in_phase.size(); ++i)
    out["peak_in_phase"][std::string(name_of(static_cast<Phase>(i)))] = memory.peak_in_phase[i];
  for (const ModuleMemory& each : memory.modules)
    out["modules"].push_back({{"module", each.module}, {"at_peak", json_of(each.at_peak)}});
  for (const LargeBlock& each : memory.largest) {
    out["largest"].push_back({{"bytes", each.bytes},
                              {"component", name_of(each.component)},
                              {"phase", name_of(each.phase)},
                              {"module", each.module},
                              {"operation", each.operation}});
  }
  for (const TimelinePoint& each : memory.timeline)
    out["timeline"].push_back({{"seconds", each.seconds}, {"bytes", each.bytes}});
  if (memory.gpu) {
    out["gpu"] = {{"title", memory.gpu->title},
                  {"capacity", memory.gpu->capacity},
                  {"context", memory.gpu->context},
                  {"reserved", memory.gpu->reserved},
                  {"reserved_at_peak", memory.gpu->reserved_at_peak},
                  {"missing", memory.gpu->missing}};
  }
  if (memory.out_of_memory) out["out_of_memory"] = json_of(*memory.out_of_memory);
  return out;
}

}  // namespace

std::string to_json(const Report& report) {
  Json out = {{"device", report.device},         {"dry", report.dry},
              {"steps", report.steps},           {"seconds", report.seconds},
              {"samples", report.samples},       {"tokens", report.tokens},
              {"memory", json_of(report.memory)}};
  for (std::size_t i = 0; i < kGroups; ++i) {
    const auto group = static_cast<OperationGroup>(i);
    out["groups"][std::string(name_of(group))] = json_of(total_of(report, group));
  }
  for (std::size_t i = 0; i < kPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    out["phases"][std::string(name_of(phase))] = json_of(total_of(report, phase));
  }
  out["operations"] = Json::array();
  for (const Operation& each : report.operations) {
    out["operations"].push_back({{"name", each.name},
                                 {"module", each.module},
                                 {"group", name_of(each.group)},
                                 {"phase", name_of(each.phase)},
                                 {"count", each.count},
                                 {"flops", each.flops},
                                 {"half_flops", each.half_flops},
                                 {"bytes_read", each.bytes_read},
                                 {"bytes_written", each.bytes_written},
                                 {"seconds", each.seconds},
                                 {"kernel_seconds", each.kernel_seconds},
                                 {"host_seconds", each.host_seconds},
                                 {"outside",
                                  {{"flops", each.outside.flops},
                                   {"half_flops", each.outside.half_flops},
                                   {"bytes", each.outside.bytes}}}});
  }
  if (report.roofs.flops_per_second > 0) {
    out["roofs"] = {{"flops_per_second", report.roofs.flops_per_second},
                    {"bf16_flops_per_second", report.roofs.bf16_flops_per_second},
                    {"fp16_flops_per_second", report.roofs.fp16_flops_per_second},
                    {"tf32_flops_per_second", report.roofs.tf32_flops_per_second},
                    {"bytes_per_second", report.roofs.bytes_per_second},
                    {"source", report.roofs.source}};
  }
  out["half_is_float16"] = report.half_is_float16;
  if (const double lower_bound = min_step_seconds(report); lower_bound > 0)
    out["min_step_seconds"] = lower_bound;
  if (const auto expected = expected_step_time(report)) {
    out["expected_step"] = {{"seconds", expected->seconds},
                            {"uncertainty", expected->uncertainty},
                            {"kernels", expected->kernels},
                            {"host", expected->host}};
  }
  if (const auto kernels = attention_kernels(report); !kernels.empty())
    out["attention_kernels"] = kernels;
  if (const double times = backward_to_forward_ratio(report); times > 0)
    out["backward_to_forward_ratio"] = times;
  if (const double reached = model_flops_utilization(report); reached > 0)
    out["model_flops_utilization"] = reached;
  if (report.what_if) out["what_if"] = json_of(*report.what_if);
  out["without_formula"] = report.without_formula;
  out["notes"] = report.notes;
  return out.dump(1) + "\n";
}

}  // namespace hasten::anatomy
