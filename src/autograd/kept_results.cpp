#include "autograd/kept_results.h"

#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "autograd/saved_tensors.h"

namespace hasten {
namespace {

using c10::IValue;
using torch::jit::Stack;

thread_local bool returned_kept_result = false;

// The operators with results that are worth their memory: they compute much more than they write.
// For an operator that writes into its arguments, the list has the names of the arguments that hold
// results.
const std::unordered_map<std::string, std::vector<std::string>>& expensive_operators() {
  static const std::unordered_map<std::string, std::vector<std::string>> all = {
      {"aten::mm", {}},
      {"aten::addmm", {}},
      {"aten::bmm", {}},
      {"aten::baddbmm", {}},
      {"aten::addbmm", {}},
      {"aten::mv", {}},
      {"aten::addmv", {}},
      {"aten::linear", {}},
      {"aten::convolution", {}},
      {"aten::_convolution", {}},
      {"aten::_grouped_mm", {}},
      {"aten::_scaled_mm", {}},
      {"aten::_scaled_dot_product_flash_attention", {}},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", {}},
      {"aten::_scaled_dot_product_efficient_attention", {}},
      {"aten::_scaled_dot_product_cudnn_attention", {}},
      {"aten::_scaled_dot_product_fused_attention_overrideable", {}},
      {"aten::_flash_attention_forward", {}},
      {"aten::_efficient_attention_forward", {}},
      {"mkldnn::_linear_pointwise", {}},
      {"hasten::attention", {"out", "log_sum"}},
  };
  return all;
}

const std::vector<std::string>* results_in_arguments(const c10::OperatorHandle& op) {
  const auto found = expensive_operators().find(op.schema().name());
  return found == expensive_operators().end() ? nullptr : &found->second;
}

// True if the operator returns or writes new tensors rather than views of its arguments.
bool has_kept_results(const c10::OperatorHandle& op) {
  const std::vector<std::string>* const written = results_in_arguments(op);
  if (written == nullptr) return false;
  return !written->empty() ||
         std::none_of(op.schema().returns().begin(), op.schema().returns().end(),
                      [](const c10::Argument& each) { return each.alias_info() != nullptr; });
}

const IValue& argument_at(const c10::OperatorHandle& op, const Stack& stack, std::size_t index) {
  return stack[stack.size() - op.schema().arguments().size() + index];
}

// True if the operator draws random numbers in its kernel. hasten's operators do not: they get a
// seed.
bool draws_random_numbers(const c10::OperatorHandle& op, const Stack& stack) {
  const auto index = op.schema().argumentIndexWithName("dropout_p");
  if (!index) return false;
  const IValue& p = argument_at(op, stack, static_cast<std::size_t>(*index));
  return p.isDouble() && p.toDouble() > 0;
}

// Returns the arguments that hold results.
std::vector<IValue> written_arguments(const c10::OperatorHandle& op, const Stack& stack) {
  std::vector<IValue> written;
  for (const std::string& name : *results_in_arguments(op)) {
    const auto index = op.schema().argumentIndexWithName(name);
    TORCH_INTERNAL_ASSERT(index, op.schema().name(), " has no argument ", name);
    written.push_back(argument_at(op, stack, static_cast<std::size_t>(*index)));
  }
  return written;
}

template <class F>
void for_each_tensor_in(const IValue& value, F&& f) {
  if (value.isTensor() && value.toTensor().defined()) f(value.toTensor());
  if (value.isTensorList()) {
    for (const at::Tensor& each : value.toTensorVector()) f(each);
  }
}

// Returns the tensor without its position in a graph.
at::Tensor without_history(const at::Tensor& tensor, c10::VariableVersion version) {
  return at::Tensor(tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(
      std::move(version), /*allow_tensor_metadata_change=*/true));
}

IValue shallow_copy(const IValue& value, bool shares_version) {
  if (!value.isTensor() || !value.toTensor().defined()) return value;
  const at::Tensor& tensor = value.toTensor();
  return without_history(tensor, shares_version ? tensor.unsafeGetTensorImpl()->version_counter()
                                                : c10::VariableVersion(0));
}

}  // namespace

bool take_kept_result_mark() { return std::exchange(returned_kept_result, false); }

KeptResults::Watched KeptResults::Watched::of(const at::Tensor& tensor) {
  return {.alias = without_history(tensor, tensor.unsafeGetTensorImpl()->version_counter()),
          .version = static_cast<std::uint32_t>(tensor._version())};
}

bool KeptResults::Watched::is_unchanged() const {
  return static_cast<std::uint32_t>(alias._version()) == version;
}

bool KeptResults::is_valid(const Result& result) const {
  return !result.values.empty() &&
         std::all_of(result.watched.begin(), result.watched.end(),
                     [](const Watched& each) { return each.is_unchanged(); });
}

void KeptResults::add(const c10::OperatorHandle& op, std::vector<IValue> values) {
  Result result{.name = op.schema().name(), .values = {}, .watched = {}};
  for (const IValue& value : values) {
    result.values.push_back(shallow_copy(value, /*shares_version=*/true));
    for_each_tensor_in(result.values.back(), [&](const at::Tensor& tensor) {
      by_storage_[tensor.storage().unsafeGetStorageImpl()].push_back(results_.size());
      result.watched.push_back(Watched::of(tensor));
      report_saved_tensor(tensor);
    });
  }
  results_.push_back(std::move(result));
}

std::vector<IValue> KeptResults::get(std::size_t number, const c10::OperatorHandle& op,
                                     bool moves) {
  if (number >= results_.size()) return {};
  Result& result = results_[number];
  if (result.name != op.schema().name() || !is_valid(result)) return {};
  std::vector<IValue> values;
  for (const IValue& value : result.values)
    values.push_back(shallow_copy(value, /*shares_version=*/false));
  if (moves) result = {.name = result.name, .values = {}, .watched = {}};
  return values;
}

void KeptResults::invalidate(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  const auto found = by_storage_.find(tensor.storage().unsafeGetStorageImpl());
  if (found == by_storage_.end()) return;
  for (const std::size_t number : found->second) {
    results_[number].values.clear();
    results_[number].watched.clear();
  }
  by_storage_.erase(found);
}

void KeptResults::watch(const at::Tensor& output) {
  if (!output.defined() || !output.has_storage()) return;
  const auto found = by_storage_.find(output.storage().unsafeGetStorageImpl());
  if (found == by_storage_.end()) return;
  for (const std::size_t number : found->second)
    results_[number].watched.push_back(Watched::of(output));
}

ResultScope::ResultScope(KeptResults* results, Run run, std::function<void()> before_call)
    : interceptor_(results, run, before_call),
      scope_(results == nullptr && !before_call ? nullptr : &interceptor_) {}

void ResultScope::Interceptor::call(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                                    Stack* stack) {
  if (before_call_) before_call_();
  if (results_ == nullptr || is_inside_) return call_operator_kernel(op, keys, stack);
  if (!has_kept_results(op) || draws_random_numbers(op, *stack)) {
    if (run_ == Run::first && op.schema().is_mutable()) {
      const auto& arguments = op.schema().arguments();
      for (std::size_t i = 0; i < arguments.size(); ++i) {
        const c10::AliasInfo* const alias = arguments[i].alias_info();
        if (alias == nullptr || !alias->isWrite()) continue;
        for_each_tensor_in(argument_at(op, *stack, i),
                           [&](const at::Tensor& tensor) { results_->invalidate(tensor); });
      }
    }
    return call_operator_kernel(op, keys, stack);
  }
  if (run_ == Run::first) return run_first(op, keys, stack);
  if (!run_second(op, stack)) compute(op, keys, stack);
}

void ResultScope::Interceptor::compute(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                                       Stack* stack) {
  struct FlagScope {
    explicit FlagScope(bool& flag) : flag(flag) { flag = true; }
    ~FlagScope() { flag = false; }
    bool& flag;
  } const scope(is_inside_);
  call_operator_kernel(op, keys, stack);
}

void ResultScope::Interceptor::run_first(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                                         Stack* stack) {
  std::vector<IValue> values = written_arguments(op, *stack);
  compute(op, keys, stack);
  if (values.empty()) {
    const auto count = static_cast<std::ptrdiff_t>(op.schema().returns().size());
    values.assign(stack->end() - count, stack->end());
  }
  results_->add(op, std::move(values));
}

bool ResultScope::Interceptor::run_second(const c10::OperatorHandle& op, Stack* stack) {
  // A backward pass that does not keep its graph needs each result only once.
  const bool moves = torch::autograd::get_current_graph_task_id() >= 0 &&
                     !torch::autograd::get_current_graph_task_keep_graph();
  std::vector<IValue> values = results_->get(next_++, op, moves);
  if (values.empty()) return false;
  returned_kept_result = true;
  const std::vector<IValue> written = written_arguments(op, *stack);
  torch::jit::drop(*stack, op.schema().arguments().size());
  if (written.empty()) {
    stack->insert(stack->end(), values.begin(), values.end());
    return true;
  }
  // The operator was given empty tensors for its results. They get the storage of the kept results.
  for (std::size_t i = 0; i < written.size(); ++i)
    written[i].toTensor().unsafeGetTensorImpl()->set_storage_keep_dtype(
        values[i].toTensor().storage());
  return true;
}

}  // namespace hasten
