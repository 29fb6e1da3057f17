#include "anatomy/dry_plan.h"

#include <set>
#include <unordered_map>

#include "anatomy/workspaces.h"

namespace hasten::anatomy {
namespace {

using c10::DispatchKey;

bool returns_views(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) return true;
  }
  return false;
}

Strategy strategy_of(const c10::OperatorHandle& op, OperatorPlan& plan) {
  static const std::set<std::string, std::less<>> wrappers = {
      "aten::_sparse_coo_tensor_with_dims_and_tensors",
      "aten::_coalesced_",
      "aten::_nnz",
      "aten::is_coalesced",
      "aten::sparse_dim",
      "aten::dense_dim",
      "aten::_has_compatible_shallow_copy_type",
      "aten::_fused_sdp_choice",
      "aten::is_same_size",
      "aten::record_stream",
      "aten::set_"};
  static const std::set<std::string, std::less<>> depending = {
      "aten::nonzero",    "aten::masked_select",      "aten::_unique2",
      "aten::unique_dim", "aten::unique_consecutive", "aten::bincount",
      "aten::_unique"};
  if (plan.name == "aten::_local_scalar_dense") return Strategy::placeholder;
  if (plan.name == "aten::equal") return Strategy::always_true;
  if (wrappers.count(plan.name)) return Strategy::real;
  // `to` and `contiguous` return their argument or a copy. The operators that they call decide
  // which.
  const bool has_kernel =
      plan.on_cpu || op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd);
  if (returns_views(op.schema()) &&
      (has_kernel || !op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd)))
    return Strategy::real;
  if (depending.count(plan.name)) return Strategy::data_dependent;
  if (op.schema().returns().empty())
    return plan.on_cpu || !plan.composite ? Strategy::skip : Strategy::composite;
  // copy_ has a kernel for all devices too, but that kernel moves bytes.
  if (plan.rule || plan.gpu_rule || plan.name == "aten::copy_" || plan.on_cpu)
    return Strategy::shapes;
  return plan.composite ? Strategy::composite : Strategy::shapes;
}

std::optional<DispatchKey> composite_key_of(const c10::OperatorHandle& op) {
  for (const DispatchKey key :
       {DispatchKey::CompositeExplicitAutograd, DispatchKey::CompositeExplicitAutogradNonFunctional,
        DispatchKey::CompositeImplicitAutograd}) {
    if (op.hasKernelForDispatchKey(key)) return key;
  }
  return std::nullopt;
}

}  // namespace

const OperatorPlan& plan_for(const c10::OperatorHandle& op) {
  static thread_local std::unordered_map<const void*, OperatorPlan> plans;
  OperatorPlan& plan = plans[&op.schema()];
  if (!plan.name.empty()) return plan;
  plan.name = op.schema().name();
  plan.on_cpu = op.hasKernelForDispatchKey(DispatchKey::CPU);
  plan.composite = composite_key_of(op);
  // An overload that only calls other operators (aten::where with a number) has the rules of those.
  if (plan.on_cpu || plan.composite != DispatchKey::CompositeImplicitAutograd)
    plan.rule = find_shape_rule(plan.name, op.schema().overload_name());
  plan.gpu_rule = find_gpu_shape_rule(plan.name, op.schema().overload_name());
  plan.workspace = has_workspace(plan.name);
  plan.gpu_workspace = find_gpu_workspace(plan.name);
  plan.gpu_composite = find_gpu_composite(plan.name);
  plan.gpu_result_order = find_gpu_result_order(plan.name);
  const auto& arguments = op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == "device") plan.device = static_cast<std::ptrdiff_t>(i);
    if (arguments[i].name() == "pin_memory") plan.pinned = static_cast<std::ptrdiff_t>(i);
  }
  plan.strategy = strategy_of(op, plan);
  return plan;
}

}  // namespace hasten::anatomy
