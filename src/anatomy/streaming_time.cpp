#include "anatomy/streaming_time.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace hasten::anatomy {
namespace {

// How an operator's kernels differ from one that streams the operands of its call once.
struct StreamRule {
  double traffic = 1;  // Bytes moved, as a multiple of those of the call.
  double share = 1;    // The share of the streaming rate.
  double kernels = 1;
  double numbers = 0;  // The most numbers per second and multiprocessor; 0: no limit.
};

// GELU's error function and the random numbers of dropout limit the numbers per second.
constexpr double kGelu = 5.8e9, kGeluBackward = 4.4e9, kDropout = 4.4e9;

StreamRule stream_rule(std::string_view name) {
  static const std::map<std::string, StreamRule, std::less<>> all = {
      {"aten::_softmax", {.share = 0.75}},
      {"aten::_log_softmax", {.share = 0.75}},
      // A separate kernel multiplies the gradient and the result.
      {"aten::_softmax_backward_data", {.traffic = 2, .share = 0.86, .kernels = 2}},
      {"aten::_log_softmax_backward_data", {.share = 0.75}},
      {"aten::native_layer_norm", {.share = 0.7}},
      // The gradients of weight and bias read the gradient and the input a second time.
      {"aten::native_layer_norm_backward", {.traffic = 5.0 / 3, .share = 0.7, .kernels = 3}},
      {"aten::sum", {.share = 0.9}},
      {"aten::mean", {.share = 0.8}},
      {"aten::copy_", {.share = 0.8}},
      {"aten::cat", {.share = 0.8}},
      {"aten::gelu", {.numbers = kGelu}},
      {"aten::gelu_backward", {.numbers = kGeluBackward}},
      {"aten::native_dropout", {.share = 0.76, .numbers = kDropout}},
      // Sorts the indices first, and then adds the rows that have the same index one by one.
      {"aten::embedding_dense_backward", {.share = 0.15, .kernels = 8}},
      // A radix sort of few numbers has one kernel for each byte of a number, and three more.
      {"aten::sort", {.share = 0.25, .kernels = 7}},
      {"aten::_foreach_norm", {.share = 0.78}},
      {"aten::_fused_adamw_", {.share = 0.77}},
      {"aten::_scaled_dot_product_cudnn_attention", {.kernels = 2}},
      {"aten::_scaled_dot_product_cudnn_attention_backward", {.kernels = 4}},
      {"hasten::bias_gelu", {.numbers = kGelu}},
      {"hasten::bias_gelu_backward", {.numbers = 0.85 * kGeluBackward}},
      {"hasten::dropout_add_norm", {.share = 0.7}},
      {"hasten::dropout_add_norm_backward", {.share = 0.55}},
      // The next four were traced on an H100.
      {"hasten::dropout_add_pre_norm", {.share = 0.94}},
      {"hasten::dropout_add_pre_norm_backward", {.share = 0.79}},
      {"hasten::softmax_dropout", {.share = 0.75, .numbers = 3.06e9}},
      {"hasten::softmax_dropout_backward", {.share = 0.75, .numbers = 2.23e9}},
      // The shares of the next four, which were not traced, are those of similar kernels.
      {"hasten::bias_tanh_gelu", {.numbers = kGelu}},
      {"hasten::bias_tanh_gelu_backward", {.numbers = 0.85 * kGeluBackward}},
      {"hasten::column_sum", {.share = 0.8}},
      {"hasten::embedding_gradient", {.share = 0.5, .kernels = 2}},
      {"hasten::embedding_sum", {.share = 0.5}},
      // Reads the logits twice and writes their gradient.
      {"hasten::cross_entropy", {.traffic = 3, .share = 0.68}},
  };
  const auto found = all.find(name);
  return found == all.end() ? StreamRule() : found->second;
}

bool has_two_operands(std::string_view name) {
  static const std::set<std::string, std::less<>> all = {"aten::add",  "aten::add_", "aten::sub",
                                                         "aten::sub_", "aten::rsub", "aten::mul",
                                                         "aten::mul_", "aten::div",  "aten::div_"};
  return all.contains(name);
}

// Numbers per second and multiprocessor of kernels that load one number at a time: sums and
// products whose operands have two types or a broadcast dimension, and copies of 16-bit numbers to
// float.
constexpr double kTwoTypes = 2.0e9, kRepeated = 3.0e9, kWidened = 2.4e9;
// A softmax whose rows are longer than this reads them twice and computes the exponentials twice.
constexpr std::int64_t kRowInRegisters = 1024;
constexpr double kLongSoftmax = 2.4e9;
// A copy between types usually has contiguous tensors; other copies often permute dimensions.
constexpr double kShareOfConversion = 0.97;

bool converts(const OperatorCall& call) {
  const auto& inputs = call.shapes.inputs;
  return call.name == "aten::copy_" && inputs.size() == 2 && inputs[0].type != inputs[1].type;
}

bool is_long_softmax(const OperatorCall& call) {
  const auto& inputs = call.shapes.inputs;
  return (call.name == "aten::_softmax" || call.name == "aten::_log_softmax") && !inputs.empty() &&
         !inputs[0].sizes.empty() && inputs[0].sizes.back() > kRowInRegisters;
}

// Returns the most numbers per second and multiprocessor; 0 if only the bytes limit the kernel.
double number_limit(const OperatorCall& call, const StreamRule& rule) {
  const auto& inputs = call.shapes.inputs;
  if (is_long_softmax(call)) return kLongSoftmax;
  if (converts(call)) return inputs[0].type == at::kFloat ? kWidened : 0;
  if (!has_two_operands(call.name) || inputs.size() < 2 || inputs[0].numel == 1 ||
      inputs[1].numel == 1)
    return rule.numbers;
  if (inputs[0].type != inputs[1].type) return kTwoTypes;
  return inputs[0].numel != inputs[1].numel ? kRepeated : 0;
}

double most_numbers(const OperatorCall& call) {
  std::int64_t maximum = 0;
  for (const TensorShape& each : call.shapes.inputs) maximum = std::max(maximum, each.numel);
  return static_cast<double>(maximum);
}

double rows_of(const TensorShape& x) {
  if (x.sizes.empty() || x.sizes.back() == 0) return 0;
  return static_cast<double>(x.numel) / static_cast<double>(x.sizes.back());
}

// A norm runs one thread block for each row. The block takes time to start and to sum twice across
// its threads.
constexpr double kRowOfNorm = 66e-9;  // seconds of a multiprocessor

double norm_row_seconds(const OperatorCall& call, const GpuSpeed& gpu) {
  const double passes = call.name == "aten::native_layer_norm"            ? 1
                        : call.name == "aten::native_layer_norm_backward" ? 2
                                                                          : 0;
  if (passes == 0 || call.shapes.inputs.empty()) return 0;
  return passes * rows_of(call.shapes.inputs[0]) * kRowOfNorm / gpu.multiprocessors;
}

// If there are few columns, a sum over rows has too few threads to fill the GPU, and each thread
// adds its rows one after the other. Then blocks wait for each other to add their partial sums.
constexpr double kRowOfSum = 1.1e-9, kPartsOfSum = 7e-6;  // seconds

bool sums_over_rows(const OperatorCall& call) {
  const CallShapes& shapes = call.shapes;
  if (call.name != "aten::sum" || shapes.inputs.empty() || shapes.values.size() < 2 ||
      !shapes.values[1].isIntList())
    return false;
  const auto rank = static_cast<std::int64_t>(shapes.inputs[0].sizes.size());
  const std::vector<std::int64_t> dimensions = shapes.values[1].toIntVector();
  return rank > 1 && !dimensions.empty() &&
         std::none_of(dimensions.begin(), dimensions.end(),
                      [&](std::int64_t each) { return each == -1 || each == rank - 1; });
}

}  // namespace

double streaming_seconds(const OperatorCall& call, const GpuSpeed& gpu) {
  const StreamRule rule = stream_rule(call.name);
  const double share = converts(call) ? kShareOfConversion : rule.share;
  double seconds = rule.traffic * call.bytes / (share * gpu.bytes_per_second);
  if (const double limit = number_limit(call, rule); limit > 0)
    seconds = std::max(seconds, most_numbers(call) / (limit * gpu.multiprocessors));
  if (sums_over_rows(call))
    seconds = std::max(seconds, rows_of(call.shapes.inputs[0]) * kRowOfSum) + kPartsOfSum;
  return seconds + norm_row_seconds(call, gpu);
}

double kernel_count(std::string_view name) { return stream_rule(name).kernels; }

}  // namespace hasten::anatomy
