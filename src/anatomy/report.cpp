#include "hasten/anatomy/report.h"

#include <algorithm>

#include "hasten/base/files.h"
#include "hasten/base/text.h"

namespace hasten::anatomy {
namespace {

template <class Belongs>
OperationTotal sum(const Report& report, Belongs belongs) {
  OperationTotal total;
  for (const Operation& each : report.operations) {
    if (belongs(each)) total += each;
  }
  return total;
}

// The seconds that an operation takes at the roof of its types. Without a roof for 16-bit numbers
// these are computed at the rate of float.
double computing_seconds(const Operation& each, const Report& report) {
  const Roofs& roofs = report.roofs;
  const double half_roof =
      report.half_is_float16 ? roofs.fp16_flops_per_second : roofs.bf16_flops_per_second;
  const bool is_tf32 =
      roofs.tf32_flops_per_second > 0 && each.group == OperationGroup::tensor_contraction;
  const double full_roof = is_tf32 ? roofs.tf32_flops_per_second : roofs.flops_per_second;
  const double half = each.half_flops - each.outside.half_flops;
  const double full = each.flops - each.outside.flops - half;
  return full / full_roof + half / (half_roof > 0 ? half_roof : roofs.flops_per_second);
}

}  // namespace

OperationTotal total_of(const Report& report, OperationGroup group) {
  return sum(report, [&](const Operation& each) { return each.group == group; });
}

OperationTotal total_of(const Report& report, Phase phase) {
  return sum(report, [&](const Operation& each) { return each.phase == phase; });
}

std::int64_t needed_bytes(const Memory& memory) {
  return memory.gpu ? memory.gpu->reserved + memory.gpu->context : memory.peak;
}

void add_roofs(Report& report) {
  if (!report.dry && report.device == "cpu") report.roofs = measure_roofs();
}

double least_step_seconds(const Report& report) {
  const Roofs& roofs = report.roofs;
  if (roofs.flops_per_second <= 0 || roofs.bytes_per_second <= 0 || report.steps == 0) return 0;
  double seconds = 0;
  for (const Operation& each : report.operations) {
    const double moving =
        static_cast<double>(each.bytes_read + each.bytes_written - each.outside.bytes) /
        roofs.bytes_per_second;
    seconds += std::max(computing_seconds(each, report), moving);
  }
  return seconds / static_cast<double>(report.steps);
}

double backward_to_forward(const Report& report) {
  double forward = 0, backward = 0;
  for (const Operation& each : report.operations) {
    const double inside = each.flops - each.outside.flops;
    forward += each.phase == Phase::forward ? inside : 0;
    backward += each.phase == Phase::backward ? inside : 0;
  }
  return forward > 0 ? backward / forward : 0;
}

double model_flops_utilization(const Report& report) {
  const Roofs& roofs = report.roofs;
  if (report.dry || roofs.flops_per_second <= 0 || report.seconds <= 0) return 0;
  double at_the_roof = 0;
  for (const Operation& each : report.operations) {
    if (each.phase == Phase::forward || each.phase == Phase::backward)
      at_the_roof += computing_seconds(each, report);
  }
  return at_the_roof / report.seconds;
}

void write_report(const std::filesystem::path& file, const Report& report) {
  const std::string name = file.filename().string();
  write_file_atomically(file, ends_with(name, ".trace.json") ? to_trace(report)
                              : ends_with(name, ".json")     ? to_json(report)
                              : ends_with(name, ".html")     ? to_html(report)
                              : ends_with(name, ".pickle")   ? to_snapshot(report)
                                                             : to_text(report));
}

}  // namespace hasten::anatomy
