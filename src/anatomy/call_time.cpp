#include "anatomy/call_time.h"

#include <ATen/Context.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "anatomy/attention_time.h"
#include "anatomy/product_time.h"
#include "anatomy/streaming_time.h"

namespace hasten::anatomy {
namespace {

// The positions of the arguments that are the factors of a product.
struct ProductRule {
  std::size_t first = 0, second = 1;
  bool batched = false;
};
const ProductRule* find_product(std::string_view name) {
  static const std::map<std::string, ProductRule, std::less<>> all = {
      {"aten::mm", {}},
      {"aten::addmm", {.first = 1, .second = 2}},
      {"aten::addmm_", {.first = 1, .second = 2}},
      {"aten::bmm", {.batched = true}},
      {"aten::baddbmm", {.first = 1, .second = 2, .batched = true}},
      {"aten::baddbmm_", {.first = 1, .second = 2, .batched = true}},
  };
  const auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}

std::optional<double> product_seconds(const OperatorCall& call, const GpuSpeed& gpu) {
  const ProductRule* const rule = find_product(call.name);
  if (rule == nullptr) return {};
  const TensorShape &a = call.shapes.input(rule->first), &b = call.shapes.input(rule->second);
  const std::size_t rank = rule->batched ? 3 : 2;
  if (a.sizes.size() != rank || b.sizes.size() != rank) return {};
  const auto size = [](const TensorShape& x, std::size_t from_end) {
    return static_cast<double>(x.sizes[x.sizes.size() - from_end]);
  };
  return product_seconds({.batch = rule->batched ? size(a, 3) : 1,
                          .rows = size(a, 2),
                          .columns = size(b, 1),
                          .inner = size(a, 1),
                          .format = format_of(a.type, call.tf32),
                          .batched = rule->batched},
                         gpu);
}

// The share of the product rate that other contractions, such as convolutions, reach.
constexpr double kShareOfOtherContractions = 0.6;

bool is_other_contraction(const OperatorCall& call) {
  const OpRule* const rule = find_rule(call.name);
  return rule != nullptr && rule->group == OperationGroup::tensor_contraction;
}

double other_contraction_seconds(const OperatorCall& call, const GpuSpeed& gpu) {
  const at::ScalarType type =
      call.shapes.inputs.empty() ? at::kFloat : call.shapes.inputs.front().type;
  return call.flops / (kShareOfOtherContractions * gpu.product_rate(format_of(type, call.tf32)));
}

double compute_seconds(const OperatorCall& call, const GpuSpeed& gpu) {
  if (const auto product = product_seconds(call, gpu)) return *product;
  if (const auto attention = attention_seconds(call, gpu)) return *attention;
  return is_other_contraction(call) ? other_contraction_seconds(call, gpu) : 0;
}

// The largest number of tensors that one kernel over a list takes.
constexpr double kTensorsOfKernel = 110;

}  // namespace

NumberFormat format_of(at::ScalarType type, bool tf32) {
  return type == at::kBFloat16 ? NumberFormat::bfloat16
         : type == at::kHalf   ? NumberFormat::float16
         : tf32                ? NumberFormat::tf32
                               : NumberFormat::float32;
}

CallTime time_of_call(const OperatorCall& call, const GpuSpeed& gpu) {
  const double launches = std::max(
      kernel_count(call.name), static_cast<double>(call.shapes.inputs.size()) / kTensorsOfKernel);
  const double working = std::max(streaming_seconds(call, gpu), compute_seconds(call, gpu));
  return {.kernels = working + launches * kKernelStart, .host = launches * kHostCost};
}

bool computes_in_tf32() {
  return at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) ==
         at::Float32Precision::TF32;
}

}  // namespace hasten::anatomy
