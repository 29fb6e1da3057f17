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

struct Counter : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, std::int64_t bytes, std::size_t, std::size_t,
                         c10::Device) override {
    live += bytes;
    peak = std::max(peak, live);
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t live = 0, peak = 0;
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

// Zeros in the place of every tensor, smaller where `sizes` says so.
torch::jit::Stack stand_ins_of(const std::vector<IValue>& arguments,
                               const std::map<std::size_t, std::vector<std::int64_t>>& sizes) {
  torch::jit::Stack stack;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const IValue& each = arguments[i];
    if (each.isTensor() && each.toTensor().defined()) {
      const auto smaller = sizes.find(i);
      stack.push_back(stand_in(each.toTensor(), smaller == sizes.end()
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

std::int64_t asked(const c10::OperatorHandle& op, const std::vector<IValue>& arguments,
                   const std::map<std::size_t, std::vector<std::int64_t>>& sizes) {
  const auto counter = std::make_shared<Counter>();
  const c10::DebugInfoGuard listening(c10::DebugInfoKind::PROFILER_STATE, counter);
  torch::jit::Stack stack = stand_ins_of(arguments, sizes);
  const torch::jit::Stack operands = stack;  // alive until the results are
  counter->live = counter->peak = 0;
  op.callBoxed(stack);
  return std::max<std::int64_t>(0, counter->peak - counter->live);
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
  if (a.dim() != 2 || multiplications < 3e8) return asked(op, arguments, {});
  std::map<std::size_t, std::vector<std::int64_t>> smaller;
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
  return copied + asked(op, arguments, smaller);
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
      "aten::mkldnn_rnn_layer",
      "aten::mkldnn_rnn_layer_backward"};
  return is_product(name) || others.count(name) != 0;
}

std::int64_t workspace_of(const c10::OperatorHandle& op, const std::vector<IValue>& arguments) {
  static thread_local std::map<std::string, std::int64_t> known;
  const bool product = is_product(op.schema().name());
  if (product && op.schema().name() != "mkldnn::_linear_pointwise") {
    // BLAS takes float products as they are; the shorter types go to oneDNN.
    for (const IValue& each : arguments) {
      if (each.isTensor() && each.toTensor().scalar_type() == at::kFloat) return 0;
    }
  }
  // A sum in the type of its operand copies nothing.
  static const std::set<std::string, std::less<>> sums = {"aten::sum", "aten::mean", "aten::prod"};
  if (sums.count(op.schema().name()) && arguments[0].toTensor().is_floating_point()) return 0;
  const auto [entry, is_new] = known.try_emplace(signature(op, arguments), 0);
  if (is_new) entry->second = product ? asked_product(op, arguments) : asked(op, arguments, {});
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
                                    std::make_shared<Counter>());
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
