#include "hasten/anatomy/dry_run.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/torch.h>

#include "anatomy/call_collector.h"
#include "anatomy/dry_devices.h"
#include "anatomy/dry_gpu.h"
#include "anatomy/dry_plan.h"
#include "anatomy/dry_tensor.h"
#include "anatomy/operand_casts.h"
#include "anatomy/workspaces.h"
#include "autograd/operator_calls.h"
#include "device/device.h"
#include "hasten/anatomy/anatomy.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace anatomy {
namespace {

using at::Tensor;
using c10::DispatchKey;
using c10::IValue;
using torch::jit::Stack;

// Returns a tensor like x without data.
Tensor to_meta(const Tensor& x) {
  if (!x.defined() || x.is_meta()) return x;
  Tensor meta = at::empty_strided(x.sizes(), x.strides(), x.options().device(at::kMeta));
  if (x.unsafeGetTensorImpl()->is_wrapped_number())
    meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  return meta;
}

IValue to_meta(const IValue& value) {
  if (value.isTensor()) return to_meta(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> out;
    for (const Tensor& each : value.toTensorVector()) out.push_back(to_meta(each));
    return out;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> out;
    for (const std::optional<Tensor>& each : value.toOptionalTensorVector())
      out.push_back(each ? std::optional<Tensor>(to_meta(*each)) : std::nullopt);
    return out;
  }
  if (value.isGenerator()) return IValue();
  return value;
}

}  // namespace

c10::IValue without_data(const c10::IValue& value) { return to_meta(value); }

namespace {

// Adds the index to a GPU without one, which means the current GPU.
at::Device with_index(at::Device device) {
  if (device.has_index() || !device_of(device).is_simulated()) return device;
  return at::Device(device.type(), 0);
}

// Returns the device of the results: the one that the call names, else the device of the first
// tensor.
at::Device result_device(const std::vector<IValue>& arguments, const OperatorPlan& plan) {
  if (plan.device >= 0 && arguments[static_cast<std::size_t>(plan.device)].isDevice())
    return with_index(arguments[static_cast<std::size_t>(plan.device)].toDevice());
  for (const IValue& each : arguments) {
    if (each.isTensor() && each.toTensor().defined()) return each.toTensor().device();
    if (each.isTensorList() && !each.toTensorList().empty())
      return each.toTensorVector().front().device();
  }
  return at::kCPU;
}

// Makes a dry result from a Meta result. If the kernel made the result in a storage, `storage` is
// that storage and the result uses it.
IValue to_dry(const IValue& result, at::Device device, const c10::Storage& storage) {
  const auto dry = [&](const Tensor& meta) {
    if (!meta.defined() || !meta.is_meta()) return meta;
    return storage ? dry_tensor(meta.sizes(), meta.strides(), meta.scalar_type(), storage)
                   : dry_tensor(meta.sizes(), meta.strides(), meta.scalar_type(), device);
  };
  if (result.isTensor()) return dry(result.toTensor());
  if (result.isTensorList()) {
    c10::List<Tensor> out;
    for (const Tensor& each : result.toTensorVector()) out.push_back(dry(each));
    return out;
  }
  return result;
}

// Gives an argument that the operator both writes to and returns the size of the result.
void resize_to(const Tensor& argument, const Tensor& result) {
  if (argument.sizes() == result.sizes()) return;
  const Tensor sized =
      dry_tensor(result.sizes(), result.strides(), argument.scalar_type(), argument.device());
  argument.unsafeGetTensorImpl()->set_storage_keep_dtype(sized.storage());
  argument.unsafeGetTensorImpl()->set_sizes_and_strides(sized.sizes(), sized.strides());
}

std::ptrdiff_t written_argument(const c10::FunctionSchema& schema, const c10::Argument& result) {
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    if (alias != nullptr && alias->isWrite() &&
        alias->beforeSets() == result.alias_info()->beforeSets())
      return static_cast<std::ptrdiff_t>(i);
  }
  return -1;
}

// Returns " in MODULE" if the current module is known, else "".
std::string in_module() {
  const std::string module = Anatomy::current_module();
  return module.empty() ? "" : " in " + module;
}

std::vector<IValue> meta_results(const c10::OperatorHandle& op, const OperatorPlan& plan,
                                 const std::vector<IValue>& arguments, at::Device device) {
  Stack meta;
  meta.reserve(arguments.size());
  for (const IValue& each : arguments) meta.push_back(to_meta(each));
  if (plan.device >= 0) meta[static_cast<std::size_t>(plan.device)] = at::Device(at::kMeta);
  if (plan.pinned >= 0) meta[static_cast<std::size_t>(plan.pinned)] = IValue();
  if (plan.gpu_rule && device_of(device).is_simulated()) return plan.gpu_rule(meta);
  if (plan.rule) return plan.rule(meta);
  try {
    op.callBoxed(meta);
  } catch (const c10::NotImplementedError&) {
    if (auto shapes = shapes_from_kernel(op, arguments)) return *shapes;
    throw UsageError("anatomy.no-shape-rule",
                     {.what = "dry run",
                      .got = plan.name + in_module() +
                             ", an operator whose result shapes LibTorch computes in Python only",
                      .hint = "measure a real step instead, or report the operator's name"});
  }
  return meta;
}

// Gives the results the strides that the kernel chooses: a convolution, for example, keeps channels
// last.
void apply_layouts(const AllocationTrace& trace, std::vector<IValue>& results) {
  for (std::size_t i = 0; i < std::min(trace.layouts.size(), results.size()); ++i) {
    const Tensor& made = trace.layouts[i];
    const bool fits = made.defined() && results[i].isTensor() && results[i].toTensor().defined() &&
                      results[i].toTensor().is_meta() &&
                      results[i].toTensor().sizes() == made.sizes() &&
                      results[i].toTensor().scalar_type() == made.scalar_type();
    if (fits) results[i] = made;
  }
}

// Takes and frees the same blocks as the kernel. The blocks that are left hold its results.
std::vector<c10::Storage> replay(const AllocationTrace& trace, at::Device device) {
  std::vector<c10::Storage> blocks(trace.bytes.size());
  for (const AllocationTrace::Event& event : trace.events) {
    blocks[event.block] =
        event.is_allocation ? dry_storage(trace.bytes[event.block], device) : c10::Storage();
  }
  return blocks;
}

void run_by_shapes(const c10::OperatorHandle& op, const OperatorPlan& plan, Stack* stack) {
  const auto& schema = op.schema();
  const std::size_t count = schema.arguments().size();
  const std::vector<IValue> arguments(stack->end() - static_cast<std::ptrdiff_t>(count),
                                      stack->end());
  const at::Device device = result_device(arguments, plan);
  std::vector<IValue> results = meta_results(op, plan, arguments, device);
  torch::jit::drop(*stack, count);
  static const AllocationTrace nothing;
  const AllocationTrace& trace =
      device.is_cpu() && plan.workspace ? allocation_trace(op, arguments) : nothing;
  apply_layouts(trace, results);
  std::vector<c10::Storage> blocks;
  if (!trace.results.empty()) blocks = replay(trace, device);
  const bool on_gpu = device_of(device).is_simulated();
  if (on_gpu) {
    for (const std::size_t i : plan.gpu_result_order)
      results[i] = to_dry(results[i], device, c10::Storage());
  }
  for (std::size_t i = 0; i < schema.returns().size(); ++i) {
    const c10::Argument& result = schema.returns()[i];
    if (result.alias_info() == nullptr) {
      const bool made = i < trace.results.size() && trace.results[i] >= 0;
      stack->push_back(
          to_dry(results[i], device,
                 made ? blocks[static_cast<std::size_t>(trace.results[i])] : c10::Storage()));
      continue;
    }
    const std::ptrdiff_t at = written_argument(schema, result);
    const IValue& argument = arguments[static_cast<std::size_t>(std::max<std::ptrdiff_t>(at, 0))];
    if (argument.isTensor() && results[i].isTensor())
      resize_to(argument.toTensor(), results[i].toTensor());
    stack->push_back(argument);
  }
  // A product's kernel makes its result before it asks for the library's workspace.
  if (on_gpu) DryGpu::active()->reserve_workspace(product_library(plan.name, arguments));
  if (CallCollector* const collector = CallCollector::active()) {
    collector->add(
        op, arguments,
        {stack->end() - static_cast<std::ptrdiff_t>(schema.returns().size()), stack->end()});
  }
  if (device.is_cpu()) {
    if (trace.results.empty()) replay(trace, device);
    dry_memory(operand_cast_bytes(op, arguments, results), device);
  } else if (on_gpu && plan.gpu_workspace) {
    for (const auto& workspaces : plan.gpu_workspace(arguments, DryGpu::active()->gpu()))
      dry_workspaces(workspaces, device);
  }
}

bool any_sparse(const Stack& stack, std::size_t count) {
  for (std::size_t i = stack.size() - count; i < stack.size(); ++i) {
    if (stack[i].isTensor() && stack[i].toTensor().defined() && stack[i].toTensor().is_sparse())
      return true;
  }
  return false;
}

// True for a few integers: orders of dimensions, positions, lengths. LibTorch itself reads these by
// pointer (repeat permutes by one), so they are really computed on the CPU.
bool is_small_integer(at::ScalarType type, std::int64_t numel) {
  constexpr std::int64_t kMaxElements = 1024;
  return at::isIntegralType(type, /*includeBool=*/true) && numel <= kMaxElements;
}

bool has_only_small_integers(const OperatorPlan& plan, const Stack& stack, std::size_t count) {
  bool any = false;
  const auto small = [&](const Tensor& x) {
    if (!x.defined()) return true;
    any = true;
    return x.is_cpu() && x.layout() == at::kStrided && is_small_integer(x.scalar_type(), x.numel());
  };
  for (std::size_t i = stack.size() - count; i < stack.size(); ++i) {
    const IValue& each = stack[i];
    if (each.isTensor() && !small(each.toTensor())) return false;
    if (each.isTensorList()) {
      for (const Tensor& x : each.toTensorVector()) {
        if (!small(x)) return false;
      }
    }
    if (each.isOptionalTensorList()) return false;
  }
  if (any || plan.name != "aten::empty") return any;
  const IValue* const arguments =
      stack.data() + stack.size() - count;  // size, dtype, layout, device
  const bool on_cpu = arguments[3].isNone() || arguments[3].toDevice().is_cpu();
  return on_cpu && arguments[0].isIntList() && arguments[1].isInt() &&
         is_small_integer(arguments[1].toScalarType(),
                          c10::multiply_integers(arguments[0].toIntVector()));
}

// Returns the strategy for this call. Depending on its tensors it may differ from the plan's
// strategy.
Strategy strategy_for(const c10::OperatorHandle& op, const OperatorPlan& plan, const Stack& stack) {
  const std::size_t count = op.schema().arguments().size();
  const Strategy planned = plan.strategy;
  if ((planned == Strategy::shapes || planned == Strategy::composite) && any_sparse(stack, count))
    return Strategy::sparse;
  const bool computes_on_cpu = plan.on_cpu || plan.name == "aten::copy_";
  if (planned == Strategy::shapes && computes_on_cpu && has_only_small_integers(plan, stack, count))
    return Strategy::real;
  // A composite that works tensor by tensor on the CPU (_foreach_mul_) is one in-place kernel on a
  // GPU.
  if (planned == Strategy::composite && op.schema().returns().empty() &&
      DryGpu::active() != nullptr)
    return Strategy::skip;
  return planned;
}

// Replaces the operands with a placeholder for the number that the program reads.
void push_placeholder(Stack* stack, std::size_t count) {
  const at::ScalarType type = torch::jit::peek(*stack, 0, count).toTensor().scalar_type();
  torch::jit::drop(*stack, count);
  stack->push_back(type == at::kBool                  ? at::Scalar(true)
                   : c10::isIntegralType(type, false) ? at::Scalar(std::int64_t{1})
                                                      : at::Scalar(1.0));
}

// Runs an operator on dry tensors.
void run_dry(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const OperatorPlan& plan = plan_for(op);
  const std::size_t count = op.schema().arguments().size();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (DryGpu* const gpu = DryGpu::active()) {
    check_same_device(plan.name, torch::jit::last(*stack, count));
    gpu->waits().add_call(plan.name, torch::jit::last(*stack, count));
  }
  if (plan.gpu_composite && DryGpu::active() != nullptr) return plan.gpu_composite(stack);
  const Strategy strategy = strategy_for(op, plan, *stack);
  if (strategy == Strategy::composite) return op.callBoxedForDispatchKey(*plan.composite, *stack);
  if (strategy == Strategy::sparse && op.hasKernelForDispatchKey(DispatchKey::SparseCPU))
    return op.callBoxedForDispatchKey(DispatchKey::SparseCPU, *stack);

  // Views are the same on all devices, but a dry GPU has no kernels for them.
  if (strategy == Strategy::real && DryGpu::active() != nullptr && (plan.on_cpu || plan.composite))
    return op.callBoxedForDispatchKey(plan.on_cpu ? DispatchKey::CPU : *plan.composite, *stack);

  const c10::impl::ExcludeDispatchKeyGuard outside_dry_run{c10::DispatchKeySet(DispatchKey::Fake)};
  const at::RecordFunctionGuard no_callbacks(/*is_enabled=*/false);
  switch (strategy) {
    case Strategy::real:
    case Strategy::sparse:
      op.callBoxed(*stack);
      // In a dry run the operators that would fill the tensor may not run, and the program may use
      // its numbers as indices. So the tensor is set to zeros.
      if (plan.name == "aten::empty") torch::jit::peek(*stack, 0, 1).toTensor().zero_();
      return;
    case Strategy::skip:
      if (CallCollector* const collector = CallCollector::active())
        collector->add(op, {stack->end() - static_cast<std::ptrdiff_t>(count), stack->end()}, {});
      return torch::jit::drop(*stack, count);
    case Strategy::placeholder:
      return push_placeholder(stack, count);
    case Strategy::always_true:
      torch::jit::drop(*stack, count);
      stack->push_back(true);
      return;
    case Strategy::data_dependent:
      throw UsageError(
          "anatomy.data-dependent",
          {.what = "dry run",
           .got = plan.name + in_module() + ", an operator whose result size depends on values",
           .hint = "measure a real step instead, or use an operator with a fixed "
                   "result size (where, a mask)"});
    default:
      return run_by_shapes(op, plan, stack);
  }
}

}  // namespace
}  // namespace anatomy

struct DryRun::Guard {
  std::optional<anatomy::DryGpu> gpu;
  DryKernelScope dry{&anatomy::run_dry};
};

DryRun::DryRun() : guard_(std::make_unique<Guard>()) {}
DryRun::DryRun(const Gpu& gpu) : guard_(std::make_unique<Guard>()) { guard_->gpu.emplace(gpu); }
DryRun::~DryRun() = default;

const Gpu* DryRun::gpu() {
  const anatomy::DryGpu* const dry = anatomy::DryGpu::active();
  return dry ? &dry->gpu() : nullptr;
}

bool DryRun::active() { return DryKernelScope::is_active(); }

}  // namespace hasten
