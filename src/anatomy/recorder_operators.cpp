// The callbacks that LibTorch makes at the start and the end of operators and backward nodes.
#include <ATen/SequenceNumber.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <torch/torch.h>

#include <algorithm>
#include <exception>
#include <set>

#include "anatomy/call_time.h"
#include "anatomy/recorder.h"
#include "anatomy/recorder_frame.h"
#include "anatomy/tensor_shapes.h"
#include "autograd/kept_results.h"
#include "base/seconds.h"
#include "device/device.h"
#include "hasten/autograd/checkpoint.h"
#include "hasten/base/text.h"
#include "models/running_module.h"
#include "ops/adapted_weight.h"

namespace hasten {

using namespace anatomy;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::size_t kMaxCalls = 1'000'000;  // 24 bytes each

// LibTorch also records its engine's work and some calls that are not operators.
bool is_operator(std::string_view name) {
  return name.find("::") != name.npos && name.rfind("autograd::", 0) != 0;
}

// True if the call multiplies by a weight with an adapter. Such an operator calls itself again and
// then calls the operators of the adapter. Those calls are counted instead.
bool any_calls_adapter(c10::ArrayRef<const c10::IValue> inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [](const c10::IValue& input) {
    return input.isTensor() && ops::calls_adapter(input.toTensor());
  });
}

}  // namespace

std::unique_ptr<at::ObserverContext> Anatomy::Recorder::begin(const at::RecordFunction& function) {
  if (active_ == nullptr) return nullptr;
  return function.scope() == at::RecordScope::BACKWARD_FUNCTION ? active_->begin_node(function)
                                                                : active_->begin_operator(function);
}

void Anatomy::Recorder::end(const at::RecordFunction& function, at::ObserverContext* context) {
  if (context == nullptr || active_ == nullptr) return;
  auto& frame = static_cast<Frame&>(*context);
  if (frame.op) {
    active_->end_operator(function, frame);
  } else {
    active_->end_node(frame);
  }
}

std::unique_ptr<at::ObserverContext> Anatomy::Recorder::begin_node(
    const at::RecordFunction& function) {
  auto frame = std::make_unique<Frame>();
  frame->parent = top_;
  frame->phase_before = phase_;
  phase_ = Phase::backward;
  frame->phase = Phase::backward;
  frame->module = modules_.layer_of_node(function.seqNr());
  frame->began = Clock::now();
  top_ = frame.get();
  return frame;
}

void Anatomy::Recorder::end_node(Frame& frame) {
  phase_ = frame.phase_before;
  top_ = frame.parent;
}

const Anatomy::Recorder::Operator& Anatomy::Recorder::operator_for(
    const at::RecordFunction& function) {
  auto& slot = operators_[function.name()];
  if (slot) return *slot;
  slot = std::make_unique<Operator>();
  slot->name = function.name();
  slot->number = static_cast<std::int32_t>(numbered_.size());
  const auto operator_name = function.operator_name();
  const std::string overload = operator_name ? operator_name->overload_name : "";
  slot->rule = device_of(device_).traits().has_linear_kernel
                   ? find_rule_with_linear_kernel(slot->name, overload)
                   : find_rule(slot->name, overload);
  if (operator_name) {
    const auto handle = c10::Dispatcher::singleton().findOp(*operator_name);
    slot->has_cpu_kernel = handle && handle->hasKernelForDispatchKey(c10::DispatchKey::CPU);
    slot->calls_adapters = handle && handle->hasKernelForDispatchKey(ops::kAdapterKey);
  }
  if (const auto schema = function.operator_schema()) {
    for (const c10::Argument& result : schema->returns()) {
      slot->views |= result.alias_info() != nullptr && !result.alias_info()->isWrite();
      slot->returns_argument.push_back(result.alias_info() != nullptr);
    }
    // Finds the arguments that are written and not read. In hasten's operators they follow the
    // arguments that are read, except in optimizers, which update them. In LibTorch's operators
    // they are named `out`.
    const bool ours = starts_with(slot->name, "hasten::") &&
                      !starts_with(slot->name, "hasten::adamw") &&
                      !starts_with(slot->name, "hasten::lion");
    bool reads = false;
    for (const c10::Argument& argument : schema->arguments()) {
      const bool writes = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
      slot->writes.push_back(writes);
      const bool overwritten =
          slot->rule != nullptr && slot->rule->overwrites && slot->writes.size() == 1;
      slot->only_writes.push_back(writes &&
                                  (argument.kwarg_only() || overwritten || (ours && reads)));
      reads |= !writes;
    }
  }
  numbered_.push_back(slot.get());
  return *slot;
}

// Returns the layer that made the operands. For a product of results of several layers, returns the
// module that they have in common. Otherwise returns -1.
std::int32_t Anatomy::Recorder::producing_layer(c10::ArrayRef<const c10::IValue> operands,
                                                const Operator& op) const {
  std::set<std::int32_t> makers;
  for (const c10::IValue& operand : operands) {
    for_each_tensor(operand, [&](const at::Tensor& tensor) {
      const Block* const block = ledger_.find(storage_of(tensor));
      if (block != nullptr && block->site.module >= 0) makers.insert(block->site.module);
    });
  }
  if (makers.size() == 1) return *makers.begin();
  const bool product = op.rule && op.rule->group == OperationGroup::tensor_contraction;
  return product && !makers.empty() ? modules_.shared_parent(makers) : -1;
}

std::int32_t Anatomy::Recorder::record_operands(c10::ArrayRef<const c10::IValue> inputs,
                                                bool runs_layers, Frame& frame) {
  const Operator& op = *frame.op;
  std::int32_t owner = -1;
  const bool counts = options_.operations && !op.views;
  const bool has_formula =
      op.rule != nullptr && (op.rule->flops || op.rule->reads || op.rule->writes);
  bool plain = true;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (counts) frame.shapes.first.push_back(frame.shapes.inputs.size());
    for_each_tensor(inputs[i], [&](const at::Tensor& tensor) {
      if (owner < 0 && (phase_ != Phase::backward || runs_layers))
        owner = modules_.owner(storage_of(tensor));
      if (!counts) return;
      if (tensor.defined() && at::isReducedFloatingType(tensor.scalar_type())) {
        frame.half = true;
        has_float16_ = has_float16_ || tensor.scalar_type() == at::kHalf;
      }
      frame.on_gpu |= gpu_speed_ && tensor.defined() && device_of(tensor.device()).is_simulated();
      plain &= is_plain(tensor);
      const TensorShape shape = shape_of(tensor);
      const bool writes = i < op.writes.size() && op.writes[i];
      if (!(i < op.only_writes.size() && op.only_writes[i])) frame.read += shape.bytes;
      if (writes) frame.written += shape.bytes;
      // An undefined tensor is a missing argument, but in a list it keeps its position.
      if (tensor.defined() || !inputs[i].isTensor()) frame.shapes.inputs.push_back(shape);
    });
    // Does not keep tensors, because autograd reuses tensors that have no other owner.
    if (counts && has_formula) {
      const bool tensors =
          inputs[i].isTensor() || inputs[i].isTensorList() || inputs[i].isOptionalTensorList();
      frame.shapes.values.push_back(tensors ? c10::IValue() : inputs[i]);
    }
  }
  if (counts) frame.shapes.first.push_back(frame.shapes.inputs.size());
  // A formula over all numbers of a tensor does not apply to a sparse tensor.
  frame.rule = plain || !has_formula || op.rule->supports_sparse ? op.rule : nullptr;
  return owner;
}

std::unique_ptr<at::ObserverContext> Anatomy::Recorder::begin_operator(
    const at::RecordFunction& function) {
  if (!is_operator(function.name())) return nullptr;
  // Skips operators inside one that is counted as a whole.
  if (top_ != nullptr && top_->op != nullptr && top_->rule != nullptr &&
      top_->rule->group != OperationGroup::none)
    return nullptr;
  const Operator& op = operator_for(function);
  const auto inputs = function.inputs();
  if (op.calls_adapters && any_calls_adapter(inputs)) return nullptr;
  auto frame = std::make_unique<Frame>();
  frame->op = &op;
  frame->call = call_count_++;
  // In the backward pass an operator belongs to its node's layer. A recomputed operator belongs to
  // the layer that runs it.
  const bool runs_layers = phase_ == Phase::forward || is_recomputing();
  std::int32_t owner = record_operands(inputs, runs_layers, *frame);
  frame->copies_weight = owner >= 0 && op.name == "aten::_to_copy";
  const std::string* const running = RunningModule::path();
  if (runs_layers && running != nullptr) {
    owner = modules_.layer_named(*running);
  } else if (owner < 0 && runs_layers && !op.views) {
    owner = producing_layer(inputs, op);
  }
  if (owner >= 0 && phase_ == Phase::forward) {
    // Inside an autograd function, gradients are disabled and its node already has a number.
    const auto next = static_cast<std::int64_t>(at::sequence_number::peek());
    modules_.enter(owner, c10::GradMode::is_enabled() ? next : next - 1);
  }
  frame->parent = top_;
  frame->phase = phase_;
  const std::int32_t node_layer = top_ ? top_->module : -1;
  frame->module = phase_ != Phase::backward   ? modules_.current()
                  : runs_layers && owner >= 0 ? owner
                                              : node_layer;
  if (phase_ == Phase::optimizer) frame->module = -1;
  frame->exceptions = std::uncaught_exceptions();
  take_kept_result_mark();  // discards the mark of a call that was not observed
  frame->began = Clock::now();
  top_ = frame.get();
  return frame;
}

void Anatomy::Recorder::count_work(const at::RecordFunction& function, Frame& frame,
                                   Operation& row) {
  const Operator& op = *frame.op;
  const auto& outputs = function.outputs();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const bool made = i >= op.returns_argument.size() || !op.returns_argument[i];
    for_each_tensor(outputs[i], [&](const at::Tensor& tensor) {
      frame.shapes.outputs.push_back(shape_of(tensor));
      frame.on_gpu |= gpu_speed_ && tensor.defined() && device_of(tensor.device()).is_simulated();
      if (made) frame.written += frame.shapes.outputs.back().bytes;
    });
  }
  row.group = frame.rule ? frame.rule->group : OperationGroup::element_wise;
  const std::optional<double> flops =
      frame.rule ? flops_of(*frame.rule, frame.shapes) : std::nullopt;
  if (!flops) op.uncounted = true;  // its bytes are still known
  row.flops += flops.value_or(0);
  if (frame.half) row.half_flops += flops.value_or(0);
  const auto bytes_moved = [&](Formula formula, std::int64_t all) {
    const std::optional<double> known = formula ? formula(frame.shapes) : std::nullopt;
    return known ? static_cast<std::int64_t>(*known) : all;
  };
  const std::int64_t read = bytes_moved(frame.rule ? frame.rule->reads : nullptr, frame.read);
  const std::int64_t written =
      bytes_moved(frame.rule ? frame.rule->writes : nullptr, frame.written);
  row.bytes_read += read;
  row.bytes_written += written;
  if (!gpu_speed_ || !frame.on_gpu) return;
  const CallTime time = time_of_call({.name = op.name,
                                      .shapes = frame.shapes,
                                      .flops = flops.value_or(0),
                                      .bytes = static_cast<double>(read + written),
                                      .tf32 = computes_in_tf32()},
                                     *gpu_speed_);
  row.kernel_seconds += time.kernels;
  row.host_seconds += time.host;
}

void Anatomy::Recorder::end_operator(const at::RecordFunction& function, Frame& frame) {
  const auto took = Clock::now() - frame.began;
  top_ = frame.parent;
  // An operator that was interrupted, for example by the end of a recomputation, has no results.
  if (std::uncaught_exceptions() > frame.exceptions) return;
  // In a recomputation, the operator may have returned a kept result.
  if (take_kept_result_mark()) return;
  if (frame.copies_weight) {
    for (const c10::IValue& output : function.outputs()) {
      for_each_tensor(output, [&](const at::Tensor& tensor) {
        ledger_.assign(storage_of(tensor), Component::model_weights, frame.module);
      });
    }
  }
  if (top_ != nullptr && top_->op != nullptr) top_->nested_time += took;
  if (!options_.operations) return;
  const Operator& op = *frame.op;
  // An operator without a rule computes only what the operators that it calls compute, unless it
  // has its own kernel.
  const bool is_composed = frame.rule == nullptr && frame.has_counted_children;
  const bool computes_nothing =
      op.views || is_composed ||
      (frame.rule != nullptr && frame.rule->group == OperationGroup::none);
  if (is_composed && op.has_cpu_kernel && !op.views) op.uncounted = true;
  Operation& row = rows_[{&op, frame.module, frame.phase}];
  row.seconds += seconds_of(took - frame.nested_time);
  ++row.count;
  if (calls_.size() < kMaxCalls) calls_.push_back({&row, frame.began, took});
  if (top_ != nullptr && (!computes_nothing || frame.has_counted_children))
    top_->has_counted_children = true;
  if (computes_nothing) return;
  count_work(function, frame, row);
}

}  // namespace hasten
