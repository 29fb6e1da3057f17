#include "exported/interpreter.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "exported/operands.h"
#include "hasten/autograd/checkpoint.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "models/running_module.h"

namespace hasten::exported {
namespace {

using c10::IValue;

std::string location_text(const Instruction& instruction) {
  return str("in node ", instruction.name, " (", instruction.target, ") of module \"",
             instruction.module_path, "\" of an exported program");
}

[[noreturn]] void fail_run(const Instruction& instruction, const std::string& got,
                           const std::string& expected) {
  throw DataError("exported.graph",
                  {.what = location_text(instruction), .got = got, .expected = expected});
}

std::vector<IValue> values_in(const IValue& value) {
  if (!value.isTensorList()) return {value};
  std::vector<IValue> values;
  for (const at::Tensor& tensor : value.toTensorVector()) values.emplace_back(tensor);
  return values;
}

std::vector<IValue> flatten(const torch::jit::Stack& stack, std::size_t first = 0) {
  std::vector<IValue> all;
  for (std::size_t i = first; i < stack.size(); ++i)
    for (IValue& value : values_in(stack[i])) all.push_back(std::move(value));
  return all;
}

std::vector<IValue> concatenate(std::vector<IValue> first, const std::vector<IValue>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

bool is_true(const IValue& condition) {
  return condition.isTensor() ? condition.toTensor().item<bool>() : condition.toBool();
}

// Moves results to their slots. Control flow returns all of its results one by one, even if the
// instruction has a single list for them.
void store_results(const Instruction& instruction, torch::jit::Stack& stack,
                   std::vector<IValue>& slots) {
  const auto store = [&](int slot, IValue value) {
    if (slot != kNoSlot) slots[static_cast<std::size_t>(slot)] = std::move(value);
  };
  const bool is_call = instruction.action == Action::call_operator;
  std::size_t next = 0;
  for (const Output& output : instruction.outputs) {
    if (is_call && output.is_list) {
      if (next >= stack.size() || !stack[next].isTensorList())
        fail_run(instruction, "a result that is not a list", "a list of tensors");
      const std::vector<IValue> list = values_in(stack[next++]);
      if (list.size() != output.slots.size())
        fail_run(instruction, str(list.size(), " tensors"), std::to_string(output.slots.size()));
      for (std::size_t i = 0; i < list.size(); ++i) store(output.slots[i], list[i]);
      continue;
    }
    for (const int slot : output.slots) {
      if (next >= stack.size()) {
        if (slot == kNoSlot) continue;  // an operator that returns nothing
        fail_run(instruction, str(stack.size(), " results"), "one for each output");
      }
      store(slot, std::move(stack[next++]));
    }
  }
}

// Sets autocast for a device, and restores it.
class AutocastRegion {
 public:
  AutocastRegion(at::DeviceType device, const AutocastSettings& settings)
      : device_(device),
        enabled_(at::autocast::is_autocast_enabled(device)),
        cache_enabled_(at::autocast::is_autocast_cache_enabled()),
        dtype_(at::autocast::get_autocast_dtype(device)) {
    at::autocast::set_autocast_enabled(device, settings.enabled);
    if (settings.dtype) at::autocast::set_autocast_dtype(device, *settings.dtype);
    at::autocast::set_autocast_cache_enabled(settings.cache_enabled);
    at::autocast::increment_nesting();
  }
  AutocastRegion(const AutocastRegion&) = delete;
  AutocastRegion& operator=(const AutocastRegion&) = delete;
  ~AutocastRegion() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, enabled_);
    at::autocast::set_autocast_dtype(device_, dtype_);
    at::autocast::set_autocast_cache_enabled(cache_enabled_);
  }

 private:
  at::DeviceType device_;
  bool enabled_, cache_enabled_;
  at::ScalarType dtype_;
};

// Gives each tensor that passes through it a gradient, which is zeros if nothing has used the
// tensor. Python does the same for the branch of a condition that did not run, and an optimizer
// with momentum needs it.
struct GradientForEach : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    for (std::size_t i = 0; i < gradients.size(); ++i)
      if (!gradients[i].defined()) gradients[i] = input_metadata(i).zeros_like();
    return std::move(gradients);
  }
};

std::vector<IValue> with_gradient_for_each(std::vector<IValue> values) {
  const auto needs_gradient = [](const IValue& value) {
    return value.isTensor() && value.toTensor().requires_grad();
  };
  torch::autograd::variable_list tensors;
  for (const IValue& value : values)
    if (needs_gradient(value)) tensors.push_back(value.toTensor());
  if (tensors.empty() || !at::GradMode::is_enabled()) return values;
  const std::shared_ptr<GradientForEach> node(new GradientForEach(), torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(tensors));
  for (IValue& value : values) {
    if (!needs_gradient(value)) continue;
    const at::Tensor passed = value.toTensor().detach();
    torch::autograd::set_history(passed, node);
    value = passed;
  }
  return values;
}

// The results of a region. checkpoint() finds the tensors in them.
struct RegionResults {
  std::vector<IValue> values;
};
template <class F>
void visit_tensors(RegionResults& results, F&& f) {
  for (IValue& value : results.values) {
    if (!value.isTensor()) continue;
    at::Tensor tensor = value.toTensor();
    f(tensor);
  }
}

}  // namespace

std::vector<IValue> Interpreter::run(const Graph& graph, std::vector<IValue> inputs) const {
  if (inputs.size() != graph.inputs.size())
    throw DataError("exported.graph", {.what = "a graph of an exported program",
                                       .got = str(inputs.size(), " inputs"),
                                       .expected = std::to_string(graph.inputs.size())});
  Values slots(static_cast<std::size_t>(graph.slots));
  for (std::size_t i = 0; i < inputs.size(); ++i)
    slots[static_cast<std::size_t>(graph.inputs[i])] = std::move(inputs[i]);
  torch::jit::Stack stack;
  for (const Instruction& instruction : graph.code) {
    try {
      const RunningModule running(instruction.module_path);
      execute(instruction, slots, stack);
    } catch (c10::Error& error) {
      // The instruction inside the region has already added its place.
      if (instruction.action == Action::recompute) throw;
      error.add_context(location_text(instruction));
      throw;
    }
  }
  Values outputs;
  for (const Operand& output : graph.outputs) outputs.push_back(value_of(output, slots));
  return outputs;
}

void Interpreter::execute(const Instruction& instruction, Values& slots,
                          torch::jit::Stack& stack) const {
  stack.clear();
  for (const Operand& operand : instruction.operands) stack.push_back(value_of(operand, slots));
  if (instruction.mode && !context_.training)
    stack[instruction.mode->index] = instruction.mode->in_evaluation;
  // The stack now has the last reference to each value that is not read again.
  for (const int slot : instruction.frees) slots[static_cast<std::size_t>(slot)] = IValue();
  if (instruction.is_skipped_in_evaluation && !context_.training) {
    stack.resize(1);  // The result of a change in place is its first operand.
  } else if (instruction.action == Action::call_operator) {
    if (instruction.check != nullptr) instruction.check(instruction.op->schema(), stack);
    instruction.op->callBoxed(stack);
  } else if (instruction.action == Action::compute_symbol) {
    const IValue result = instruction.symbol(Values(stack.begin(), stack.end()));
    stack = {result};
  } else {
    run_control_flow(instruction, stack);
  }
  store_results(instruction, stack, slots);
  // Clears results that nothing reads.
  for (const int slot : instruction.frees) slots[static_cast<std::size_t>(slot)] = IValue();
}

void Interpreter::run_control_flow(const Instruction& instruction, torch::jit::Stack& stack) const {
  const Graph& first = *instruction.graphs.front();
  Values results;
  switch (instruction.action) {
    case Action::set_grad_mode: {
      const at::AutoGradMode mode(instruction.grad_enabled);
      results = run(first, flatten(stack));
      break;
    }
    case Action::autocast:
      results = run_under_autocast(instruction, flatten(stack));
      break;
    case Action::branch:
      results = run(is_true(stack[0]) ? first : *instruction.graphs[1],
                    with_gradient_for_each(flatten(stack, 1)));
      break;
    case Action::recompute:
      // A region returns one value for each output, and a list stays a list.
      stack = run_recomputed(instruction, std::exchange(stack, {}));
      return;
    case Action::loop:
      results = run_loop(instruction, values_in(stack[0]), values_in(stack[1]));
      break;
    case Action::map:
      results = run_rows(instruction, {}, values_in(stack[0]), values_in(stack[1]));
      break;
    case Action::scan:
      results =
          run_rows(instruction, values_in(stack[0]), values_in(stack[1]), values_in(stack[2]));
      break;
    default:
      fail_run(instruction, "an unknown action", "control flow");
  }
  stack = flatten(results);
}

std::vector<IValue> Interpreter::run_under_autocast(const Instruction& instruction,
                                                    Values inputs) const {
  const AutocastRegion region(context_.device.type(), instruction.autocast);
  return run(*instruction.graphs.front(), std::move(inputs));
}

// The tensors among the inputs are the arguments of the region. Numbers, and the buffers that the
// region changes, are the same in both runs.
std::vector<IValue> Interpreter::run_recomputed(const Instruction& instruction,
                                                Values inputs) const {
  CheckpointOptions options = instruction.checkpoint;
  std::vector<bool> is_kept(inputs.size());
  const auto keep = [&](std::size_t place) {
    options.state.push_back(inputs[place].toTensor());
    is_kept[place] = true;
  };
  for (const std::size_t place : instruction.mutated_operands)
    if (inputs[place].isTensor()) keep(place);
  // A tensor with a gradient may be an activation of which the region changes only a copy.
  for (const std::size_t place : instruction.mutated_views)
    if (inputs[place].isTensor() && !inputs[place].toTensor().requires_grad()) keep(place);
  std::vector<at::Tensor> tensors;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (is_kept[i] || !inputs[i].isTensor()) continue;
    tensors.push_back(inputs[i].toTensor());
    inputs[i] = IValue(at::Tensor());
  }
  const auto run_region = [interpreter = *this, graph = instruction.graphs.front(), is_kept,
                           inputs](const std::vector<at::Tensor>& given) {
    Values values = inputs;
    auto next = given.begin();
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!is_kept[i] && values[i].isTensor()) values[i] = *next++;
    return RegionResults{interpreter.run(*graph, std::move(values))};
  };
  inputs.clear();
  return checkpoint(options, run_region, tensors).values;
}

std::vector<IValue> Interpreter::run_loop(const Instruction& instruction, Values carried,
                                          const Values& extra) const {
  const Graph &condition = *instruction.graphs[0], &body = *instruction.graphs[1];
  while (true) {
    const Values conditions = run(condition, concatenate(carried, extra));
    if (conditions.size() != 1) fail_run(instruction, str(conditions.size(), " conditions"), "1");
    if (!is_true(conditions[0])) return carried;
    Values next = flatten(run(body, concatenate(carried, extra)));
    if (next.size() != carried.size())
      fail_run(instruction, str(next.size(), " values"), std::to_string(carried.size()));
    carried = std::move(next);
  }
}

std::vector<IValue> Interpreter::run_rows(const Instruction& instruction, Values carried,
                                          const Values& mapped, const Values& extra) const {
  std::vector<std::vector<at::Tensor>> rows;  // the rows of each result that is not carried
  const std::int64_t count = mapped.empty() ? 0 : mapped[0].toTensor().size(0);
  for (std::int64_t row = 0; row < count; ++row) {
    Values inputs = carried;
    for (const IValue& value : mapped) inputs.emplace_back(value.toTensor().select(0, row));
    Values results = flatten(run(*instruction.graphs[0], concatenate(std::move(inputs), extra)));
    if (results.size() < carried.size())
      fail_run(instruction, str(results.size(), " values"), str("at least ", carried.size()));
    const auto first_row = results.begin() + static_cast<std::ptrdiff_t>(carried.size());
    rows.resize(results.size() - carried.size());
    for (std::size_t i = 0; i < rows.size(); ++i)
      rows[i].push_back(first_row[static_cast<std::ptrdiff_t>(i)].toTensor());
    carried.assign(results.begin(), first_row);
  }
  for (const std::vector<at::Tensor>& each : rows) carried.emplace_back(at::stack(each));
  return carried;
}

IValue Interpreter::value_of(const Operand& operand, const Values& slots) const {
  const auto in_slot = [&slots](const Operand& each) -> const IValue& {
    return slots[static_cast<std::size_t>(each.slot)];
  };
  switch (operand.kind) {
    case Operand::Kind::constant:
      return operand.constant;
    case Operand::Kind::slot: {
      const IValue& value = in_slot(operand);
      if (operand.wraps_number && !value.isTensor()) return wrapped_number(value);
      if (operand.to_double && !value.isDouble()) return value.toScalar().toDouble();
      return value;
    }
    case Operand::Kind::tensors: {
      c10::List<at::Tensor> list;
      list.reserve(operand.items.size());
      for (const Operand& item : operand.items) list.push_back(in_slot(item).toTensor());
      return list;
    }
    case Operand::Kind::optional_tensors: {
      c10::List<std::optional<at::Tensor>> list;
      list.reserve(operand.items.size());
      for (const Operand& item : operand.items) {
        if (item.kind == Operand::Kind::slot)
          list.push_back(in_slot(item).toTensor());
        else
          list.push_back(std::nullopt);
      }
      return list;
    }
    case Operand::Kind::integers: {
      c10::List<std::int64_t> list;
      list.reserve(operand.items.size());
      for (const Operand& item : operand.items)
        list.push_back(item.kind == Operand::Kind::slot ? in_slot(item).toInt()
                                                        : item.constant.toInt());
      return list;
    }
    case Operand::Kind::device:
      return context_.device;
    case Operand::Kind::cudnn_flag:
      return at::globalContext().userEnabledCuDNN();
  }
  return {};
}

}  // namespace hasten::exported
