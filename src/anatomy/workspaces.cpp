#include "anatomy/workspaces.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "hasten/base/text.h"

namespace hasten::anatomy {
namespace {

using at::Tensor;
using c10::IValue;

// Writes down what is allocated and freed while it listens.
struct Listener : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void* pointer, std::int64_t bytes, std::size_t, std::size_t,
                         c10::Device) override {
    if (!listening) return;
    if (bytes > 0) {
      alive[pointer] = script.bytes.size();
      script.events.push_back({.block = script.bytes.size(), .birth = true});
      script.bytes.push_back(bytes);
    } else if (const auto found = alive.find(pointer); found != alive.end()) {
      script.events.push_back({.block = found->second, .birth = false});
      alive.erase(found);
    }
  }
  bool memoryProfilingEnabled() const override { return true; }

  bool listening = false;
  Script script;
  std::map<const void*, std::size_t> alive;
};

bool is_product(std::string_view name) {
  static const std::set<std::string, std::less<>> names = {
      "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "mkldnn::_linear_pointwise"};
  return names.count(name) != 0;
}

// Rows beyond which a product is asked with fewer.
constexpr std::int64_t kMostRows = 256;

// The same sizes and strides, zeros.
Tensor stand_in(const Tensor& x, const std::vector<std::int64_t>& sizes) {
  if (!x.defined()) return x;
  const auto options = x.options().device(at::kCPU);
  if (sizes == x.sizes()) return at::empty_strided(sizes, x.strides(), options).zero_();
  // Smaller, in the same order of dimensions.
  std::vector<std::int64_t> order(sizes.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return x.stride(a) > x.stride(b); });
  std::vector<std::int64_t> strides(sizes.size(), 1);
  std::int64_t stride = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    strides[static_cast<std::size_t>(*dim)] = stride;
    stride *= sizes[static_cast<std::size_t>(*dim)];
  }
  return at::empty_strided(sizes, strides, options).zero_();
}

std::string signature(const c10::OperatorHandle& op, const std::vector<IValue>& arguments) {
  std::string text =
      str(op.schema().name(), ".", op.schema().overload_name(), " ", at::get_num_threads());
  for (const IValue& each : arguments) {
    if (each.isTensor() && each.toTensor().defined()) {
      const Tensor x = each.toTensor();
      text += str(" ", c10::toString(x.scalar_type()));
      for (std::int64_t i = 0; i < x.dim(); ++i) text += str(",", x.size(i), ":", x.stride(i));
    } else if (each.isInt()) {
      text += str(" ", each.toInt());
    } else if (each.isIntList()) {
      for (const std::int64_t number : each.toIntVector()) text += str(" ", number);
    } else if (each.isBool()) {
      text += each.toBool() ? " t" : " f";
    } else {
      text += " _";
    }
  }
  return text;
}

// What a kernel is asked: the operands' sizes and numbers, where they are not the program's own.
struct Question {
  std::map<std::size_t, std::vector<std::int64_t>> sizes;
  std::map<std::size_t, IValue> numbers;
  bool smaller() const { return !sizes.empty() || !numbers.empty(); }
};

// The same, where a kernel takes as much memory of its own for fewer rows, or none of its result's
// size, and the whole would take long to run.
Question question_of(std::string_view name, const std::vector<IValue>& arguments) {
  constexpr std::int64_t kMostNumbers = std::int64_t{1} << 22;
  Question question;
  const auto rows_alike = [&](std::size_t operand) {
    const Tensor x = arguments[operand].toTensor();
    if (x.numel() <= kMostNumbers || x.dim() == 0 || x.size(0) < 2) return;
    const std::int64_t kept =
        std::max<std::int64_t>(std::min<std::int64_t>(x.size(0), at::get_num_threads()),
                               x.size(0) * kMostNumbers / x.numel());
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (!arguments[i].isTensor() || !arguments[i].toTensor().defined()) continue;
      auto sizes = arguments[i].toTensor().sizes().vec();
      if (sizes.empty() || sizes[0] != x.size(0)) continue;
      sizes[0] = kept;
      question.sizes[i] = std::move(sizes);
    }
  };
  if (name == "aten::embedding_dense_backward") {
    if (arguments[2].toInt() * arguments[0].toTensor().size(-1) > kMostNumbers)
      question.numbers[2] = std::int64_t{64};  // rows of the table
  } else if (name == "aten::mean" || name == "aten::_scaled_dot_product_flash_attention_for_cpu") {
    rows_alike(0);
  } else if (name == "aten::_scaled_dot_product_flash_attention_for_cpu_backward" ||
             name == "aten::native_layer_norm_backward") {
    rows_alike(1);
  }
  return question;
}

// Zeros in the place of every tensor.
torch::jit::Stack stand_ins_of(const std::vector<IValue>& arguments, const Question& question) {
  torch::jit::Stack stack;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const IValue& each = arguments[i];
    if (const auto number = question.numbers.find(i); number != question.numbers.end()) {
      stack.push_back(number->second);
    } else if (each.isTensor() && each.toTensor().defined()) {
      const auto smaller = question.sizes.find(i);
      stack.push_back(stand_in(each.toTensor(), smaller == question.sizes.end()
                                                    ? each.toTensor().sizes().vec()
                                                    : smaller->second));
    } else if (each.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& x : each.toTensorVector()) list.push_back(stand_in(x, x.sizes().vec()));
      stack.push_back(list);
    } else {
      stack.push_back(each);
    }
  }
  return stack;
}

Script asked(const c10::OperatorHandle& op, const std::vector<IValue>& arguments,
             const Question& question) {
  const auto listener = std::make_shared<Listener>();
  const c10::DebugInfoGuard in_place_of_others(c10::DebugInfoKind::PROFILER_STATE, listener);
  torch::jit::Stack stack = stand_ins_of(arguments, question);
  const torch::jit::Stack operands = stack;  // alive until the results are
  listener->listening = true;
  op.callBoxed(stack);
  listener->listening = false;
  for (const IValue& result : stack) {
    const bool lies =
        result.isTensor() && result.toTensor().defined() && result.toTensor().has_storage();
    const auto found =
        lies ? listener->alive.find(result.toTensor().storage().data()) : listener->alive.end();
    listener->script.results.push_back(
        found == listener->alive.end() ? -1 : static_cast<std::ptrdiff_t>(found->second));
  }
  return listener->script;
}

// A smaller question's answer: results have their own sizes, and copies of operands theirs.
void enlarge(Script& script, const std::vector<IValue>& arguments, const Question& question,
             const std::vector<IValue>& results) {
  std::map<std::int64_t, std::int64_t> operands;  // bytes asked with, bytes
  for (const auto& [at, sizes] : question.sizes) {
    const Tensor x = arguments[at].toTensor();
    operands[c10::multiply_integers(sizes) * static_cast<std::int64_t>(x.element_size())] =
        static_cast<std::int64_t>(x.nbytes());
  }
  std::vector<bool> is_result(script.bytes.size(), false);
  for (std::size_t i = 0; i < script.results.size() && i < results.size(); ++i) {
    if (script.results[i] < 0 || !results[i].isTensor()) continue;
    const auto block = static_cast<std::size_t>(script.results[i]);
    is_result[block] = true;
    script.bytes[block] = static_cast<std::int64_t>(results[i].toTensor().nbytes());
  }
  for (std::size_t block = 0; block < script.bytes.size(); ++block) {
    const auto copied = operands.find(script.bytes[block]);
    if (!is_result[block] && copied != operands.end()) script.bytes[block] = copied->second;
  }
}

// The most bytes held at once beside what is left at the end.
std::int64_t workspace_of(const Script& script) {
  std::int64_t live = 0, most = 0;
  for (const Script::Event& event : script.events) {
    live += event.birth ? script.bytes[event.block] : -script.bytes[event.block];
    most = std::max(most, live);
  }
  return most - live;
}

// Memory beside the results, which are made first.
Script workspace_alone(std::int64_t bytes) {
  if (bytes == 0) return {};
  return {.bytes = {bytes}, .events = {{0, true}, {0, false}}, .results = {}};
}

// For products a [m, k] and b [k, n] (or [n, k]): where the first operand stands.
std::size_t first_operand(std::string_view name) {
  return name == "aten::addmm" || name == "aten::baddbmm" ? 1 : 0;
}

std::int64_t asked_product(const c10::OperatorHandle& op, const std::vector<IValue>& arguments) {
  const std::size_t at = first_operand(op.schema().name());
  const Tensor a = arguments[at].toTensor(), b = arguments[at + 1].toTensor();
  const bool linear = op.schema().name() == "mkldnn::_linear_pointwise";
  const std::int64_t rows = a.numel() / std::max<std::int64_t>(1, a.size(-1));
  const double multiplications =
      static_cast<double>(a.numel()) * static_cast<double>(linear ? b.size(0) : b.size(-1));
  if (a.dim() != 2 || multiplications < 3e8) return workspace_of(asked(op, arguments, {}));
  Question question;
  auto& smaller = question.sizes;
  const std::int64_t fewer = std::min(kMostRows, rows);
  smaller[at] = {fewer, a.size(1)};
  std::int64_t copied = 0;
  if (linear) {
    // Float products pack a strip of the second operand, however many strips there are; a first
    // operand that does not lie row by row is copied whole.
    const std::int64_t columns = std::min(kMostRows, b.size(0));
    smaller[at + 1] = {columns, b.size(1)};
    if (!a.is_contiguous())
      copied = (rows - fewer) * a.size(1) * static_cast<std::int64_t>(a.element_size());
    if (arguments[2].isTensor()) smaller[2] = {columns};
  }
  if (at == 1 && arguments[0].isTensor() && arguments[0].toTensor().dim() == 2)
    smaller[0] = {fewer, arguments[0].toTensor().size(1)};
  return copied + workspace_of(asked(op, arguments, question));
}

}  // namespace

bool has_workspace(std::string_view name) {
  static const std::set<std::string, std::less<>> others = {
      "aten::convolution",
      "aten::convolution_backward",
      "aten::_scaled_dot_product_flash_attention_for_cpu",
      "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
      "aten::embedding_dense_backward",
      "aten::native_layer_norm_backward",
      "aten::native_batch_norm",
      "aten::native_batch_norm_backward",
      "aten::native_group_norm_backward",
      "aten::_index_put_impl_",
      "aten::sort",
      "aten::topk",
      "aten::sum",  // numbers of another type are cast first
      "aten::mean",
      "aten::prod",
      "aten::cumsum",
      "aten::index_add_",
      "aten::mse_loss",
      "aten::smooth_l1_loss",
      "aten::huber_loss",
      "aten::binary_cross_entropy",
      "aten::gather",
      "aten::scatter",
      "aten::scatter_",
      "aten::scatter_add",
      "aten::scatter_add_",
      "aten::scatter_reduce",
      "aten::logsumexp",
      "aten::var",
      "aten::var_mean",
      "aten::std",
      "aten::upsample_bilinear2d",
      "aten::upsample_bilinear2d_backward",
      "aten::upsample_bicubic2d",
      "aten::upsample_linear1d",
      "aten::mkldnn_rnn_layer",
      "aten::mkldnn_rnn_layer_backward"};
  return is_product(name) || others.count(name) != 0;
}

const Script& script_of(const c10::OperatorHandle& op, const std::vector<IValue>& arguments,
                        const std::vector<IValue>& results) {
  static thread_local std::map<std::string, Script> known;
  static const Script nothing;
  const bool product = is_product(op.schema().name());
  if (product && op.schema().name() != "mkldnn::_linear_pointwise") {
    // BLAS takes float products as they are; the shorter types go to oneDNN.
    for (const IValue& each : arguments) {
      if (each.isTensor() && each.toTensor().scalar_type() == at::kFloat) return nothing;
    }
  }
  // A sum in the type of its operand copies nothing.
  static const std::set<std::string, std::less<>> sums = {"aten::sum", "aten::prod"};
  if (sums.count(op.schema().name()) && arguments[0].toTensor().is_floating_point()) return nothing;
  const auto [entry, is_new] = known.try_emplace(signature(op, arguments));
  if (!is_new) return entry->second;
  if (product) {
    entry->second = workspace_alone(asked_product(op, arguments));
  } else {
    const Question question = question_of(op.schema().name(), arguments);
    entry->second = asked(op, arguments, question);
    if (question.smaller()) enlarge(entry->second, arguments, question, results);
  }
  return entry->second;
}

std::optional<std::vector<IValue>> asked_shapes(const c10::OperatorHandle& op,
                                                const std::vector<IValue>& arguments) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 28;
  static thread_local std::map<std::string, std::vector<IValue>> known;
  std::size_t bytes = 0;
  for (const IValue& each : arguments) {
    if (each.isTensor() && each.toTensor().defined()) bytes += each.toTensor().nbytes();
  }
  if (bytes > kMostBytes || !op.hasKernelForDispatchKey(c10::DispatchKey::CPU)) return std::nullopt;
  const auto [entry, is_new] = known.try_emplace(signature(op, arguments));
  if (!is_new) return entry->second;
  const c10::DebugInfoGuard unheard(c10::DebugInfoKind::PROFILER_STATE,
                                    std::make_shared<Listener>());
  torch::jit::Stack results = stand_ins_of(arguments, {});
  op.callBoxed(results);
  for (const IValue& each : results) {
    if (each.isTensor() && each.toTensor().defined()) {
      const Tensor x = each.toTensor();
      entry->second.emplace_back(
          at::empty_strided(x.sizes(), x.strides(), x.options().device(at::kMeta)));
    } else {
      entry->second.push_back(each);
    }
  }
  return entry->second;
}

}  // namespace hasten::anatomy
