#include "anatomy/call_collector.h"

#include <ATen/ATen.h>
#include <torch/torch.h>

#include <time.h>

#include <algorithm>
#include <cmath>

#include "anatomy/op_rules.h"
#include "anatomy/tensor_shapes.h"
#include "anatomy/workspaces.h"

namespace hasten::anatomy {
namespace {

thread_local CallCollector* active_collector = nullptr;

// Sets the figures of one call.
void set_figures(CollectedCall& call, const std::vector<c10::IValue>& arguments,
                 const std::vector<c10::IValue>& results) {
  const c10::FunctionSchema& schema = call.op.schema();
  const OpRule* const rule = find_rule_with_linear_kernel(schema.name(), schema.overload_name());
  CallShapes shapes;
  double bytes = 0;
  for (const c10::IValue& each : arguments) {
    shapes.first.push_back(shapes.inputs.size());
    for_each_tensor(each, [&](const at::Tensor& tensor) {
      shapes.inputs.push_back(shape_of(tensor));
      bytes += static_cast<double>(shapes.inputs.back().bytes);
      call.half |= tensor.defined() && at::isReducedFloatingType(tensor.scalar_type());
    });
    const bool tensors = each.isTensor() || each.isTensorList() || each.isOptionalTensorList();
    shapes.values.push_back(tensors ? c10::IValue() : each);
  }
  shapes.first.push_back(shapes.inputs.size());
  for (const c10::IValue& each : results) {
    for_each_tensor(each, [&](const at::Tensor& tensor) {
      shapes.outputs.push_back(shape_of(tensor));
      bytes += static_cast<double>(shapes.outputs.back().bytes);
    });
  }
  call.bytes = bytes;
  if (rule == nullptr) return;
  call.group = rule->group;
  call.flops = flops_of(*rule, shapes).value_or(0);
}

// The most bytes that the operands of a measured call may take.
constexpr double kMaxOperandBytes = 256 << 20;

double bytes_of(const std::vector<c10::IValue>& arguments) {
  double bytes = 0;
  for (const c10::IValue& each : arguments) {
    for_each_tensor(each, [&](const at::Tensor& tensor) {
      if (tensor.defined()) bytes += static_cast<double>(tensor.nbytes());
    });
  }
  return bytes;
}

// Returns the arguments, with only the first `count` elements of each list that has `length`
// elements, such as the lists of an optimizer.
std::vector<c10::IValue> with_shorter_lists(const std::vector<c10::IValue>& arguments,
                                            std::size_t length, std::size_t count) {
  std::vector<c10::IValue> out;
  for (const c10::IValue& each : arguments) {
    if (each.isTensorList() && each.toTensorList().size() == length) {
      const std::vector<at::Tensor> all = each.toTensorVector();
      out.emplace_back(c10::List<at::Tensor>(
          std::vector<at::Tensor>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count))));
    } else if (each.isIntList() && each.toIntList().size() == length) {
      std::vector<std::int64_t> all = each.toIntVector();
      all.resize(count);
      out.emplace_back(all);
    } else {
      out.push_back(each);
    }
  }
  return out;
}

// Returns arguments that take little memory, by leaving out elements of lists. Returns an empty
// vector if that is not possible.
std::vector<c10::IValue> shorten_lists_to_limit(const std::vector<c10::IValue>& arguments) {
  if (bytes_of(arguments) <= kMaxOperandBytes) return arguments;
  std::size_t length = 0;
  for (const c10::IValue& each : arguments)
    if (each.isTensorList()) length = std::max(length, each.toTensorList().size());
  for (std::size_t count = length / 2; count > 0; count /= 2) {
    std::vector<c10::IValue> shorter = with_shorter_lists(arguments, length, count);
    if (bytes_of(shorter) <= kMaxOperandBytes) return shorter;
  }
  return {};
}

constexpr int kMinTimedCalls = 3, kMaxTimedCalls = 20;
// In a step, the operators between two calls replace the contents of a core's fast caches.
// Therefore consecutive calls get different operands, which together take at least this many bytes.
constexpr double kCachedBytes = 8 << 20;

// Sets all bits of the byte tensors among the operands. An optimizer uses such a tensor to mark the
// rows of a table that have moments, and after some steps nearly all rows have moments.
torch::jit::Stack with_marked_rows(torch::jit::Stack operands) {
  for (const c10::IValue& each : operands) {
    for_each_tensor(each, [](const at::Tensor& tensor) {
      if (tensor.defined() && tensor.scalar_type() == at::kByte) tensor.fill_(255);
    });
  }
  return operands;
}

// Returns operands for consecutive calls.
std::vector<torch::jit::Stack> rotating_operands(const std::vector<c10::IValue>& arguments) {
  const double sets = std::ceil(kCachedBytes / std::max(1.0, bytes_of(arguments)));
  std::vector<torch::jit::Stack> out;
  for (int i = 0; i < kMaxTimedCalls && (i == 0 || i < sets); ++i)
    out.push_back(with_marked_rows(zero_operands(arguments)));
  return out;
}

}  // namespace

CallCollector::CallCollector() { active_collector = this; }
CallCollector::~CallCollector() { active_collector = nullptr; }
CallCollector* CallCollector::active() { return active_collector; }

void CallCollector::add(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                        const std::vector<c10::IValue>& results) {
  if (!counts_) return;
  const std::string signature = call_signature(op, arguments);
  const auto known = calls_.find(signature);
  if (known != calls_.end()) {
    ++known->second.count;
    return;
  }
  CollectedCall call{.op = op, .count = 1};
  for (const c10::IValue& each : arguments) call.arguments.push_back(without_data(each));
  set_figures(call, arguments, results);
  calls_.emplace(signature, std::move(call));
}

double work_clock_seconds() {
  timespec now{};
  clock_gettime(at::get_num_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double measured_seconds(const CollectedCall& call, double budget) {
  const torch::NoGradGuard no_grad;
  const std::vector<c10::IValue> arguments = shorten_lists_to_limit(call.arguments);
  if (arguments.empty()) return 0;
  double minimum = 0, all = 0;
  try {
    const std::vector<torch::jit::Stack> operands = rotating_operands(arguments);
    for (int i = 0; i < kMaxTimedCalls && (i < kMinTimedCalls || all < budget); ++i) {
      torch::jit::Stack stack = operands[static_cast<std::size_t>(i) % operands.size()];
      const double before = work_clock_seconds();
      call.op.callBoxed(stack);
      stack.clear();  // freeing the results is part of the call
      const double took = work_clock_seconds() - before;
      minimum = i == 0 ? took : std::min(minimum, took);
      all += took;
    }
  } catch (const std::exception&) {  // zeros are not valid operands, or there is too little memory
    return 0;
  }
  const double measured_bytes = bytes_of(arguments);
  return measured_bytes > 0 ? minimum * bytes_of(call.arguments) / measured_bytes : minimum;
}

}  // namespace hasten::anatomy
