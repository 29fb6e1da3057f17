#include "anatomy/workspaces.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "hasten/base/text.h"

namespace hasten::anatomy {
namespace {

using at::Tensor;
using c10::IValue;

// Records what is allocated and freed while `listening` is set.
struct AllocationListener : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void* pointer, std::int64_t bytes, std::size_t, std::size_t,
                         c10::Device) override {
    if (!listening) return;
    if (bytes > 0) {
      alive[pointer] = trace.bytes.size();
      trace.events.push_back({.block = trace.bytes.size(), .is_allocation = true});
      trace.bytes.push_back(bytes);
    } else if (const auto found = alive.find(pointer); found != alive.end()) {
      trace.events.push_back({.block = found->second, .is_allocation = false});
      alive.erase(found);
    }
  }
  bool memoryProfilingEnabled() const override { return true; }

  bool listening = false;
  AllocationTrace trace;
  std::map<const void*, std::size_t> alive;
};

bool is_product(std::string_view name) {
  static const std::set<std::string, std::less<>> names = {
      "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "mkldnn::_linear_pointwise"};
  return names.count(name) != 0;
}

// True for operators with kernels that copy an operand that is not contiguous, and take no other
// memory.
bool copies_operands(std::string_view name) {
  static const std::set<std::string, std::less<>> names = {"aten::_log_softmax",
                                                           "aten::_log_softmax_backward_data",
                                                           "aten::_softmax",
                                                           "aten::_softmax_backward_data",
                                                           "aten::native_layer_norm",
                                                           "aten::native_group_norm",
                                                           "aten::im2col",
                                                           "aten::col2im"};
  return names.count(name) != 0;
}

bool is_sum(std::string_view name) { return name == "aten::sum" || name == "aten::prod"; }

// True if a sum or product has the type of its operand. Otherwise its kernel copies the operand.
bool keeps_type(const c10::OperatorHandle& op, const std::vector<IValue>& arguments) {
  const at::ScalarType type = arguments[0].toTensor().scalar_type();
  const auto given = op.schema().argumentIndexWithName("dtype");
  if (!given || arguments[static_cast<std::size_t>(*given)].isNone())
    return at::isFloatingType(type);
  return arguments[static_cast<std::size_t>(*given)].toScalarType() == type;
}

bool all_contiguous(const std::vector<IValue>& arguments) {
  return std::all_of(arguments.begin(), arguments.end(), [](const IValue& each) {
    return !each.isTensor() || !each.toTensor().defined() || each.toTensor().is_contiguous();
  });
}

// True if BLAS takes the matrices of a tensor without a copy: rows or columns are dense.
bool is_blas_layout(const Tensor& x) {
  if (x.dim() < 2) return true;
  const auto dense = [&](std::int64_t inner, std::int64_t outer) {
    return x.stride(inner) == 1 && x.stride(outer) >= std::max<std::int64_t>(1, x.size(inner));
  };
  return dense(-1, -2) || dense(-2, -1);
}

// The largest number of rows and columns with which a large product is run.
constexpr std::int64_t kMaxRows = 256;

// Returns zeros in place of x. If `sizes` are the sizes of x, they have the strides of x.
Tensor zeros_with_sizes(const Tensor& x, const std::vector<std::int64_t>& sizes) {
  if (!x.defined()) return x;
  const auto options = x.options().device(at::kCPU);
  if (sizes == x.sizes()) return at::empty_strided(sizes, x.strides(), options).zero_();
  // Smaller tensors are dense, with the same order of dimensions.
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

// Returns the type, sizes and strides as a text.
std::string layout_text(const Tensor& x) {
  std::string text = str(" ", c10::toString(x.scalar_type()));
  for (std::int64_t i = 0; i < x.dim(); ++i) text += str(",", x.size(i), ":", x.stride(i));
  return text;
}

}  // namespace

std::string call_signature(const c10::OperatorHandle& op, const std::vector<IValue>& arguments) {
  std::string text =
      str(op.schema().name(), ".", op.schema().overload_name(), " ", at::get_num_threads());
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const IValue& each = arguments[i];
    if (each.isTensor() && each.toTensor().defined()) {
      text += layout_text(each.toTensor());
    } else if (i < op.schema().arguments().size() && op.schema().arguments()[i].name() == "seed") {
      continue;  // the random numbers of a kernel change neither its memory nor its time
    } else if (each.isTensorList()) {
      for (const Tensor& x : each.toTensorVector()) text += x.defined() ? layout_text(x) : " _";
    } else if (each.isInt()) {
      text += str(" ", each.toInt());
    } else if (each.isIntList()) {
      for (const std::int64_t number : each.toIntVector()) text += str(" ", number);
    } else if (each.isBool()) {
      text += each.toBool() ? " t" : " f";
    } else if (each.isBoolList()) {
      for (const bool flag : each.toBoolList()) text += flag ? " t" : " f";
    } else {
      text += " _";
    }
  }
  return text;
}

namespace {

// Sizes of operands and values of numbers, by argument, that replace those of the program.
struct ReducedOperands {
  std::map<std::size_t, std::vector<std::int64_t>> sizes;
  std::map<std::size_t, IValue> numbers;
};

// Rows that a call can have fewer of, because each block grows in proportion to them or not at all.
struct RowCount {
  std::vector<std::size_t> operands;  // arguments that have the rows as first dimension
  std::ptrdiff_t number = -1;         // argument that is the number of rows, or -1
  std::int64_t all = 0, fewer = 0;

  ReducedOperands with(const std::vector<IValue>& arguments, std::int64_t rows) const {
    ReducedOperands reduced;
    for (const std::size_t i : operands) {
      auto sizes = arguments[i].toTensor().sizes().vec();
      sizes[0] = rows;
      reduced.sizes[i] = std::move(sizes);
    }
    if (number >= 0) reduced.numbers[static_cast<std::size_t>(number)] = rows;
    return reduced;
  }
};

// Returns nullopt if the call is small enough to run with all rows.
std::optional<RowCount> rows_of(std::string_view name, const std::vector<IValue>& arguments) {
  constexpr std::int64_t kMaxElements = std::int64_t{1} << 22;
  const auto fewer = [&](std::int64_t rows, std::int64_t numbers) {
    return std::max<std::int64_t>(at::get_num_threads() + 1, rows * kMaxElements / numbers);
  };
  // `operands` are the arguments that have the rows as first dimension. Other
  // arguments keep their sizes, even if one of those equals the rows.
  const auto first_dimension =
      [&](const std::vector<std::size_t>& operands) -> std::optional<RowCount> {
    const Tensor x = arguments[operands.front()].toTensor();
    if (x.numel() <= kMaxElements || x.dim() == 0) return std::nullopt;
    RowCount rows{.all = x.size(0), .fewer = fewer(x.size(0), x.numel())};
    for (const std::size_t i : operands) {
      if (!arguments[i].isTensor() || !arguments[i].toTensor().defined()) continue;
      if (arguments[i].toTensor().size(0) == rows.all) rows.operands.push_back(i);
    }
    return rows.fewer < rows.all ? std::make_optional(rows) : std::nullopt;
  };
  // A mask has the rows only if it has four dimensions. With two it is the same for all rows.
  const auto attention = [&](std::vector<std::size_t> operands, std::size_t mask) {
    const IValue& given = arguments[mask];
    if (given.isTensor() && given.toTensor().defined() && given.toTensor().dim() == 4)
      operands.push_back(mask);
    return first_dimension(operands);
  };
  if (name == "aten::mean" || is_sum(name)) return first_dimension({0});
  if (name == "aten::_scaled_dot_product_flash_attention_for_cpu") return attention({0, 1, 2}, 5);
  if (name == "aten::_scaled_dot_product_flash_attention_for_cpu_backward")
    return attention({0, 1, 2, 3, 4, 5}, 8);
  if (name == "aten::native_layer_norm_backward") {
    const auto normalized = static_cast<std::int64_t>(arguments[2].toIntVector().size());
    // If all dimensions are normalized, the first one is part of the normalized shape.
    if (normalized == arguments[1].toTensor().dim()) return std::nullopt;
    return first_dimension({0, 1, 3, 4});  // the gradient, x, and the statistics
  }
  if (name == "aten::embedding_dense_backward" &&
      arguments[2].toInt() * arguments[0].toTensor().size(-1) > kMaxElements)
    return RowCount{.number = 2, .all = arguments[2].toInt(), .fewer = 64};
  return std::nullopt;
}

// Returns the arguments with every tensor replaced by zeros, and with the changes of `reduced`.
torch::jit::Stack reduced_zero_operands(const std::vector<IValue>& arguments,
                                        const ReducedOperands& reduced) {
  torch::jit::Stack stack;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const IValue& each = arguments[i];
    if (const auto number = reduced.numbers.find(i); number != reduced.numbers.end()) {
      stack.push_back(number->second);
    } else if (each.isTensor() && each.toTensor().defined()) {
      const auto smaller = reduced.sizes.find(i);
      stack.push_back(zeros_with_sizes(each.toTensor(), smaller == reduced.sizes.end()
                                                            ? each.toTensor().sizes().vec()
                                                            : smaller->second));
    } else if (each.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& x : each.toTensorVector())
        list.push_back(zeros_with_sizes(x, x.sizes().vec()));
      stack.push_back(list);
    } else {
      stack.push_back(each);
    }
  }
  return stack;
}

// Returns a tensor like x on the Meta device, or an undefined tensor if x is not strided.
Tensor layout_of(const Tensor& x) {
  if (!x.defined() || x.layout() != at::kStrided) return {};
  return at::empty_strided(x.sizes(), x.strides(), x.options().device(at::kMeta));
}

AllocationTrace record_allocations(const c10::OperatorHandle& op,
                                   const std::vector<IValue>& arguments,
                                   const ReducedOperands& reduced) {
  const auto listener = std::make_shared<AllocationListener>();
  const c10::DebugInfoGuard replaced_profiler(c10::DebugInfoKind::PROFILER_STATE, listener);
  torch::jit::Stack stack = reduced_zero_operands(arguments, reduced);
  const torch::jit::Stack operands = stack;  // keeps the operands alive to the end
  listener->listening = true;
  op.callBoxed(stack);
  listener->listening = false;
  for (const IValue& result : stack) {
    const bool has_storage =
        result.isTensor() && result.toTensor().defined() && result.toTensor().has_storage();
    const auto found = has_storage ? listener->alive.find(result.toTensor().storage().data())
                                   : listener->alive.end();
    listener->trace.results.push_back(
        found == listener->alive.end() ? -1 : static_cast<std::ptrdiff_t>(found->second));
  }
  if (reduced.sizes.empty() && reduced.numbers.empty()) {
    for (const IValue& result : stack)
      listener->trace.layouts.push_back(result.isTensor() ? layout_of(result.toTensor())
                                                          : Tensor());
  }
  return listener->trace;
}

// Runs the kernel with fewer rows, and again with one row less, to find the bytes that a row adds
// to a block.
AllocationTrace record_with_fewer_rows(const c10::OperatorHandle& op,
                                       const std::vector<IValue>& arguments, const RowCount& rows) {
  AllocationTrace trace = record_allocations(op, arguments, rows.with(arguments, rows.fewer));
  const AllocationTrace less =
      record_allocations(op, arguments, rows.with(arguments, rows.fewer - 1));
  // If a kernel takes a block for each row, the last block is missing in the second run.
  for (std::size_t block = 0; block < std::min(less.bytes.size(), trace.bytes.size()); ++block) {
    const std::int64_t per_row = trace.bytes[block] - less.bytes[block];
    trace.bytes[block] += per_row * (rows.all - rows.fewer);
  }
  return trace;
}

// Returns the largest number of bytes held at once, minus the bytes left at the end.
std::int64_t peak_workspace(const AllocationTrace& trace) {
  std::int64_t live = 0, peak = 0;
  for (const AllocationTrace::Event& event : trace.events) {
    live += event.is_allocation ? trace.bytes[event.block] : -trace.bytes[event.block];
    peak = std::max(peak, live);
  }
  return peak - live;
}

// Returns a trace that takes and frees one block after the results have been made.
AllocationTrace single_block_trace(std::int64_t bytes) {
  if (bytes == 0) return {};
  return {.bytes = {bytes}, .events = {{0, true}, {0, false}}, .results = {}, .layouts = {}};
}

// Returns the position of the first operand of a product a [m, k] times b [k, n] (or [n, k]).
std::size_t first_operand(std::string_view name) {
  return name == "aten::addmm" || name == "aten::baddbmm" ? 1 : 0;
}

std::int64_t product_workspace(const c10::OperatorHandle& op,
                               const std::vector<IValue>& arguments) {
  const std::size_t at = first_operand(op.schema().name());
  const Tensor a = arguments[at].toTensor(), b = arguments[at + 1].toTensor();
  const bool linear = op.schema().name() == "mkldnn::_linear_pointwise";
  const std::int64_t rows = a.numel() / std::max<std::int64_t>(1, a.size(-1));
  const double multiplications =
      static_cast<double>(a.numel()) * static_cast<double>(linear ? b.size(0) : b.size(-1));
  if (a.dim() != 2 || multiplications < 3e8)
    return peak_workspace(record_allocations(op, arguments, {}));
  ReducedOperands reduced;
  auto& smaller = reduced.sizes;
  const std::int64_t fewer = std::min(kMaxRows, rows);
  smaller[at] = {fewer, a.size(1)};
  std::int64_t copied = 0;
  if (linear) {
    // A float product packs one strip of the second operand at a time. If the first operand is not
    // contiguous, it is copied as a whole.
    const std::int64_t columns = std::min(kMaxRows, b.size(0));
    smaller[at + 1] = {columns, b.size(1)};
    if (!a.is_contiguous())
      copied = (rows - fewer) * a.size(1) * static_cast<std::int64_t>(a.element_size());
    if (arguments[2].isTensor()) smaller[2] = {columns};
  }
  if (at == 1 && arguments[0].isTensor() && arguments[0].toTensor().dim() == 2)
    smaller[0] = {fewer, arguments[0].toTensor().size(1)};
  return copied + peak_workspace(record_allocations(op, arguments, reduced));
}

}  // namespace

torch::jit::Stack zero_operands(const std::vector<IValue>& arguments) {
  return reduced_zero_operands(arguments, {});
}

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
      "aten::sum",  // casts numbers of a different type first
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
  return is_product(name) || copies_operands(name) || others.count(name) != 0;
}

const AllocationTrace& allocation_trace(const c10::OperatorHandle& op,
                                        const std::vector<IValue>& arguments) {
  static thread_local std::map<std::string, AllocationTrace> known;
  static const AllocationTrace nothing;
  const bool product = is_product(op.schema().name());
  if (product && op.schema().name() != "mkldnn::_linear_pointwise") {
    // BLAS takes float operands without a copy; products of shorter types go to oneDNN.
    const auto is_taken = [](const IValue& each) {
      return !each.isTensor() ||
             (each.toTensor().scalar_type() == at::kFloat && is_blas_layout(each.toTensor()));
    };
    if (std::all_of(arguments.begin(), arguments.end(), is_taken)) return nothing;
  }
  if (copies_operands(op.schema().name()) && all_contiguous(arguments)) return nothing;
  if (is_sum(op.schema().name()) && keeps_type(op, arguments)) return nothing;
  const std::string call = call_signature(op, arguments);
  if (const auto found = known.find(call); found != known.end()) return found->second;
  AllocationTrace trace;  // stored only when complete, as the kernel may throw
  if (product) {
    trace = single_block_trace(product_workspace(op, arguments));
  } else if (const auto rows = rows_of(op.schema().name(), arguments)) {
    trace = record_with_fewer_rows(op, arguments, *rows);
  } else {
    trace = record_allocations(op, arguments, {});
  }
  return known.emplace(call, std::move(trace)).first->second;
}

std::optional<std::vector<IValue>> shapes_from_kernel(const c10::OperatorHandle& op,
                                                      const std::vector<IValue>& arguments) {
  constexpr std::size_t kMaxBytes = std::size_t{1} << 28;
  static thread_local std::map<std::string, std::vector<IValue>> known;
  std::size_t bytes = 0;
  for (const IValue& each : arguments) {
    if (each.isTensor() && each.toTensor().defined()) bytes += each.toTensor().nbytes();
  }
  if (bytes > kMaxBytes || !op.hasKernelForDispatchKey(c10::DispatchKey::CPU)) return std::nullopt;
  const std::string call = call_signature(op, arguments);
  if (const auto found = known.find(call); found != known.end()) return found->second;
  const c10::DebugInfoGuard no_recording(c10::DebugInfoKind::PROFILER_STATE,
                                         std::make_shared<AllocationListener>());
  torch::jit::Stack results = reduced_zero_operands(arguments, {});
  op.callBoxed(results);
  std::vector<IValue> shapes;  // stored only when complete, as the kernel may throw
  for (const IValue& each : results) {
    if (each.isTensor() && each.toTensor().defined()) {
      shapes.emplace_back(layout_of(each.toTensor()));
    } else {
      shapes.push_back(each);
    }
  }
  return known.emplace(call, std::move(shapes)).first->second;
}

}  // namespace hasten::anatomy
