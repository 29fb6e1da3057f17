#include "anatomy/attention_time.h"

#include <algorithm>
#include <map>
#include <string>

namespace hasten::anatomy {
namespace {

// The share of the product rate that a kernel reaches for heads of 64 numbers, and for heads of 128
// and more, which keep the tensor cores busier.
struct AttentionShare {
  double narrow = 0, wide = 0;
};

struct AttentionRule {
  AttentionShare before_hopper, from_hopper;
  bool is_backward = false;
  // The positions of two arguments: the share of dropped scores, and whether attention is causal,
  // or its type of mask.
  std::size_t dropout = 0, causal = 0;
  // The bytes that further kernels move for each number of the query.
  double further_bytes = 0;
  // The position of the length of the longest row if rows are packed. 0 if the query is [batch,
  // heads, length, size].
  std::size_t longest = 0;
};

// For Hopper and later, the shares of cuDNN's kernels and of the memory-efficient kernel are
// measured on an H200, where the memory-efficient kernel uses Ampere instructions. The other shares
// are estimates. The kernels for packed rows are the same as those for rows of one length.
const AttentionRule* find_attention(std::string_view name) {
  static const std::map<std::string, AttentionRule, std::less<>> all = {
      {"aten::_scaled_dot_product_flash_attention", {{0.65, 0.78}, {0.40, 0.48}, false, 3, 4}},
      {"aten::_scaled_dot_product_flash_attention_backward",
       {{0.55, 0.66}, {0.32, 0.38}, true, 10, 11}},
      {"aten::_scaled_dot_product_cudnn_attention", {{0.65, 0.78}, {0.48, 0.70}, false, 5, 6}},
      // An extra kernel first reads the result and its gradient. Another one at the end rounds the
      // gradient of the query from float.
      {"aten::_scaled_dot_product_cudnn_attention_backward",
       {{0.55, 0.66}, {0.44, 0.65}, true, 13, 14, 10}},
      {"aten::_scaled_dot_product_efficient_attention", {{0.45, 0.54}, {0.255, 0.34}, false, 5, 6}},
      {"aten::_scaled_dot_product_efficient_attention_backward",
       {{0.30, 0.36}, {0.25, 0.28}, true, 9, 11}},
      {"aten::_flash_attention_forward", {{0.65, 0.78}, {0.40, 0.48}, false, 7, 8, 0, 6}},
      {"aten::_flash_attention_backward", {{0.55, 0.66}, {0.32, 0.38}, true, 10, 11, 0, 9}},
      {"aten::_efficient_attention_forward", {{0.45, 0.54}, {0.255, 0.34}, false, 8, 9, 0, 7}},
      {"aten::_efficient_attention_backward", {{0.30, 0.36}, {0.25, 0.28}, true, 11, 14, 0, 9}},
  };
  const auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}

constexpr std::int64_t kWideHead = 128;
// The number of rows of scores that a block computes. A causal kernel skips the blocks above the
// diagonal.
constexpr double kScoreRows = 128;
// The number of scores per second for which a multiprocessor draws dropout. It follows from the
// difference between steps with and without dropout on an H200. The backward pass overlaps more of
// this time with its five products.
constexpr double kDrawnForward = 8e9, kDrawnBackward = 15e9;
// The number of products in a pass over the scores.
constexpr double kProductsForward = 2, kProductsBackward = 5;
// The share of the streaming rate that the further kernels reach.
constexpr double kShareOfFurther = 0.58;

// Returns the rate of the products within an attention kernel. The float kernel computes each
// product on tensor cores as three products in TF32 if the GPU supports TF32.
double attention_rate(at::ScalarType type, const GpuSpeed& gpu) {
  if (at::isReducedFloatingType(type)) return gpu.product_rate(format_of(type, false));
  return std::max(gpu.float32_products, gpu.tf32_products / 3);
}

const c10::IValue* find_value(const OperatorCall& call, std::size_t argument) {
  return argument < call.shapes.values.size() ? &call.shapes.values[argument] : nullptr;
}

// Returns the share of the scores that is computed.
double computed_share(const OperatorCall& call, const AttentionRule& rule, double length) {
  const c10::IValue* const causal = find_value(call, rule.causal);
  const bool is_causal = causal != nullptr && ((causal->isBool() && causal->toBool()) ||
                                               (causal->isInt() && causal->toInt() != 0));
  return is_causal ? std::min(1.0, 0.5 + kScoreRows / (2 * length)) : 1;
}

// Returns the number of keys of the longest row, or nullopt if the call has other shapes.
std::optional<double> keys_of_longest_row(const OperatorCall& call, const AttentionRule& rule,
                                          const TensorShape& query) {
  if (rule.longest == 0) {
    if (query.sizes.size() != 4) return {};
    return static_cast<double>(query.sizes[2]);
  }
  const c10::IValue* const longest = find_value(call, rule.longest);
  if (query.sizes.size() < 3 || longest == nullptr || !longest->isInt()) return {};
  return static_cast<double>(std::max<std::int64_t>(1, longest->toInt()));
}

double dropout_seconds(const OperatorCall& call, const AttentionRule& rule, double scores,
                       const GpuSpeed& gpu) {
  const c10::IValue* const dropout = find_value(call, rule.dropout);
  if (dropout == nullptr || !dropout->isDouble() || dropout->toDouble() <= 0) return 0;
  return scores / ((rule.is_backward ? kDrawnBackward : kDrawnForward) * gpu.multiprocessors);
}

}  // namespace

std::optional<double> attention_seconds(const OperatorCall& call, const GpuSpeed& gpu) {
  const AttentionRule* const rule = find_attention(call.name);
  if (rule == nullptr) return {};
  const TensorShape& query = call.shapes.input(rule->is_backward ? 1 : 0);
  const std::optional<double> length = keys_of_longest_row(call, *rule, query);
  if (!length) return {};
  const AttentionShare shares =
      gpu.compute_capability >= 90 ? rule->from_hopper : rule->before_hopper;
  const std::int64_t size = query.sizes.back();
  const double share = size >= kWideHead ? shares.wide : shares.narrow;
  const double flops = call.flops * computed_share(call, *rule, *length);
  const double products = rule->is_backward ? kProductsBackward : kProductsForward;
  const double scores = flops / (2 * products * static_cast<double>(size));
  return flops / (share * attention_rate(query.type, gpu)) +
         dropout_seconds(call, *rule, scores, gpu) +
         rule->further_bytes * static_cast<double>(query.numel) /
             (kShareOfFurther * gpu.bytes_per_second);
}

}  // namespace hasten::anatomy
