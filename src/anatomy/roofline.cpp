#include "anatomy/roofline.h"

namespace hasten::anatomy {

double compute_seconds(const Operation& each, const Report& report) {
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

double memory_seconds(const Operation& each, const Report& report) {
  return static_cast<double>(each.bytes_read + each.bytes_written - each.outside.bytes) /
         report.roofs.bytes_per_second;
}

}  // namespace hasten::anatomy
