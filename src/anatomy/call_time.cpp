#include "anatomy/call_time.h"

#include <ATen/Context.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "anatomy/product_time.h"

namespace hasten::anatomy {
namespace {

NumberFormat format_of(at::ScalarType type, bool tf32) {
  return type == at::kBFloat16 ? NumberFormat::bfloat16
         : type == at::kHalf   ? NumberFormat::float16
         : tf32                ? NumberFormat::tf32
                               : NumberFormat::float32;
}

// The arguments that are the factors of a product.
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
  return seconds_of({.batch = rule->batched ? size(a, 3) : 1,
                     .rows = size(a, 2),
                     .columns = size(b, 1),
                     .inner = size(a, 1),
                     .format = format_of(a.type, call.tf32),
                     .batched = rule->batched},
                    gpu);
}

// The share of the product rate that a fused attention kernel reaches for heads of 64 numbers, the
// argument with the queries, and the one that says whether the attention is causal.
struct AttentionRule {
  double before_hopper = 0, from_hopper = 0;
  std::size_t query = 0, causal = 0;
};
const AttentionRule* find_attention(std::string_view name) {
  static const std::map<std::string, AttentionRule, std::less<>> all = {
      {"aten::_scaled_dot_product_flash_attention", {0.65, 0.42, 0, 4}},
      {"aten::_scaled_dot_product_flash_attention_backward", {0.55, 0.33, 1, 11}},
      {"aten::_scaled_dot_product_cudnn_attention", {0.65, 0.53, 0, 6}},
      {"aten::_scaled_dot_product_cudnn_attention_backward", {0.55, 0.45, 1, 14}},
      {"aten::_scaled_dot_product_efficient_attention", {0.45, 0.45, 0, 6}},
      {"aten::_scaled_dot_product_efficient_attention_backward", {0.30, 0.30, 1, 11}},
  };
  const auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}

// Heads of 128 numbers and more keep the tensor cores busier.
constexpr double kWideHead = 1.2;
// The rows of scores that a block computes. A causal kernel skips the blocks above the diagonal.
constexpr double kScoreRows = 128;

// The rate of the products within an attention kernel. The kernel for float computes each on tensor
// cores as three products in TF32 if the GPU has them.
double attention_rate(at::ScalarType type, const GpuSpeed& gpu) {
  if (at::isReducedFloatingType(type)) return gpu.product_rate(format_of(type, false));
  return std::max(gpu.float32_products, gpu.tf32_products / 3);
}

std::optional<double> attention_seconds(const OperatorCall& call, const GpuSpeed& gpu) {
  const AttentionRule* const rule = find_attention(call.name);
  if (rule == nullptr) return {};
  const TensorShape& query = call.shapes.input(rule->query);
  if (query.sizes.size() != 4) return {};
  double share = gpu.compute_capability >= 90 ? rule->from_hopper : rule->before_hopper;
  if (query.sizes[3] >= 128) share *= kWideHead;
  double computed = 1;
  const bool knows_causal =
      rule->causal < call.shapes.values.size() && call.shapes.values[rule->causal].isBool();
  if (knows_causal && call.shapes.values[rule->causal].toBool())
    computed = std::min(1.0, 0.5 + kScoreRows / (2 * static_cast<double>(query.sizes[2])));
  return call.flops * computed / (share * attention_rate(query.type, gpu));
}

// The share of the product rate that other contractions reach, such as convolutions.
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

double computing_seconds(const OperatorCall& call, const GpuSpeed& gpu) {
  if (const auto product = product_seconds(call, gpu)) return *product;
  if (const auto attention = attention_seconds(call, gpu)) return *attention;
  return is_other_contraction(call) ? other_contraction_seconds(call, gpu) : 0;
}

// How an operator's kernels differ from one that streams the operands of its call once.
struct StreamRule {
  double traffic = 1;  // Bytes moved, as a multiple of those of the call.
  double share = 1;    // The share of the streaming rate.
  double kernels = 1;
};
StreamRule stream_rule(std::string_view name) {
  static const std::map<std::string, StreamRule, std::less<>> all = {
      {"aten::_softmax", {.share = 0.75}},
      {"aten::_log_softmax", {.share = 0.75}},
      // The product of the gradient and the result is a kernel of its own.
      {"aten::_softmax_backward_data", {.traffic = 2, .share = 0.86, .kernels = 2}},
      {"aten::_log_softmax_backward_data", {.share = 0.75}},
      {"aten::native_layer_norm", {.share = 0.7}},
      // The gradients of weight and bias read the gradient and the input a second time.
      {"aten::native_layer_norm_backward", {.traffic = 5.0 / 3, .share = 0.7, .kernels = 3}},
      {"aten::sum", {.share = 0.8}},
      {"aten::mean", {.share = 0.8}},
      {"aten::copy_", {.share = 0.8}},
      {"aten::cat", {.share = 0.8}},
      // Sorts the indices first.
      {"aten::embedding_dense_backward", {.kernels = 8}},
  };
  const auto found = all.find(name);
  return found == all.end() ? StreamRule() : found->second;
}

// A kernel over a list takes at most so many tensors.
constexpr double kTensorsOfKernel = 110;

}  // namespace

CallTime time_of_call(const OperatorCall& call, const GpuSpeed& gpu) {
  const StreamRule rule = stream_rule(call.name);
  const double moving = rule.traffic * call.bytes / (rule.share * gpu.bytes_per_second);
  const double launches =
      std::max(rule.kernels, static_cast<double>(call.shapes.inputs.size()) / kTensorsOfKernel);
  return {.kernels = std::max(moving, computing_seconds(call, gpu)) + launches * kKernelStart,
          .host = launches * kHostCost};
}

bool computes_in_tf32() {
  return at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) ==
         at::Float32Precision::TF32;
}

}  // namespace hasten::anatomy
