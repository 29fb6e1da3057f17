#include "hasten/anatomy/report.h"

#include <algorithm>
#include <functional>

#include "anatomy/roofline.h"
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

double min_step_seconds(const Report& report) {
  const Roofs& roofs = report.roofs;
  if (roofs.flops_per_second <= 0 || roofs.bytes_per_second <= 0 || report.steps == 0) return 0;
  double seconds = 0;
  for (const Operation& each : report.operations)
    seconds += std::max(compute_seconds(each, report), memory_seconds(each, report));
  return seconds / static_cast<double>(report.steps);
}

std::map<std::string, std::int64_t> attention_kernels(const Report& report) {
  static const std::map<std::string, std::string, std::less<>> kernels = {
      {"aten::_scaled_dot_product_cudnn_attention", "cudnn"},
      {"aten::_scaled_dot_product_flash_attention", "flash"},
      {"aten::_scaled_dot_product_efficient_attention", "efficient"},
      {"aten::_scaled_dot_product_attention_math", "math"}};
  std::map<std::string, std::int64_t> calls;
  if (report.device == "cpu") return calls;
  for (const Operation& each : report.operations) {
    if (const auto kernel = kernels.find(each.name); kernel != kernels.end())
      calls[kernel->second] += each.count;
  }
  return calls;
}

double backward_to_forward_ratio(const Report& report) {
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
      at_the_roof += compute_seconds(each, report);
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
