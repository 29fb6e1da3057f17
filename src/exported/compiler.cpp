#include "exported/compiler.h"

#include <algorithm>
#include <limits>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::exported {
namespace {

constexpr std::string_view kControlFlowPrefix = "torch.ops.higher_order.";

// The control flow that the interpreter knows, with its number of graphs and its number of
// operands. Operands are conditions and lists of values. A region has any number of operands.
struct ControlFlow {
  std::string_view name;
  Action action;
  std::size_t graphs, operands = 2;
};
constexpr ControlFlow kControlFlow[] = {{"wrap_with_set_grad_enabled", Action::set_grad_mode, 1},
                                        {"wrap_with_autocast", Action::autocast, 1},
                                        {"cond", Action::branch, 2},
                                        {"while_loop", Action::loop, 2},
                                        {"map_impl", Action::map, 1},
                                        {"scan", Action::scan, 1, 3}};

const ControlFlow* control_flow_named(const std::string& target) {
  if (!starts_with(target, kControlFlowPrefix)) return nullptr;
  const auto* const found = std::find_if(
      std::begin(kControlFlow), std::end(kControlFlow),
      [&](const auto& each) { return target.substr(kControlFlowPrefix.size()) == each.name; });
  return found == std::end(kControlFlow) ? nullptr : found;
}

// The metadata has "key,path,class" for each module on the way to the innermost one, separated by
// semicolons. A module that is called again has "@1" after its path.
std::string module_path_of(const JsonCursor& node) {
  const auto metadata = node.find("metadata");
  const auto stack = metadata ? metadata->find("nn_module_stack") : std::nullopt;
  if (!stack) return "";
  const std::vector<std::string> innermost = split(split(stack->text(), ';').back(), ',');
  if (innermost.size() < 2 || starts_with(innermost[1], "_empty_nn_module_stack")) return "";
  return innermost[1].substr(0, innermost[1].find('@'));
}

void collect_slots(const Operand& operand, std::vector<int>& slots) {
  if (operand.kind == Operand::Kind::slot) slots.push_back(operand.slot);
  for (const Operand& item : operand.items) collect_slots(item, slots);
}

std::vector<int> slots_of(const std::vector<Operand>& operands) {
  std::vector<int> slots;
  for (const Operand& operand : operands) collect_slots(operand, slots);
  return slots;
}

// Appends the slot of each value that a graph gets; kNoSlot for a constant.
void append_passed_slots(const Operand& operand, std::vector<int>& slots) {
  const bool is_list = operand.kind == Operand::Kind::tensors;
  if (!is_list) slots.push_back(operand.slot);
  for (const Operand& item : operand.items) slots.push_back(item.slot);
}

// Notes for each slot the instruction after which nothing reads it.
void find_last_uses(Graph& graph) {
  constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();
  std::vector<std::size_t> last(static_cast<std::size_t>(graph.slots), kNever);
  for (std::size_t i = 0; i < graph.code.size(); ++i) {
    for (const int slot : slots_of(graph.code[i].operands))
      last[static_cast<std::size_t>(slot)] = i;
    for (const Output& output : graph.code[i].outputs)
      for (const int slot : output.slots)
        if (slot != kNoSlot) last[static_cast<std::size_t>(slot)] = i;
  }
  for (const int slot : slots_of(graph.outputs)) last[static_cast<std::size_t>(slot)] = kNever;
  for (std::size_t slot = 0; slot < last.size(); ++slot)
    if (last[slot] != kNever) graph.code[last[slot]].frees.push_back(static_cast<int>(slot));
}

bool is_constant_bool(const Operand& operand, bool value) {
  return operand.kind == Operand::Kind::constant && operand.constant.isBool() &&
         operand.constant.toBool() == value;
}

ValueKind kind_of_tag(const std::string& tag) {
  if (tag == "as_sym_int") return ValueKind::integer;
  if (tag == "as_sym_float") return ValueKind::number;
  if (tag == "as_sym_bool") return ValueKind::boolean;
  return ValueKind::tensor;
}

}  // namespace

void Compiler::compile(const JsonCursor& graph, const std::vector<GraphInput>& inputs,
                       Program& program) {
  program.graph = compile_graph(graph, inputs);
  if (!refused_.empty()) {
    std::vector<std::string> all;
    for (const auto& [what, paths] : refused_) {
      const std::string first = *paths.begin();
      all.push_back(str(what, first.empty() ? "" : ", in module " + first,
                        paths.size() > 1 ? str(" and ", paths.size() - 1, " more") : ""));
    }
    throw DataError("exported.operator",
                    {.what = file_ + ": hasten does not run these operators",
                     .got = join(all, "; "),
                     .hint = "load the library that has the operator (--library FILE.so, or "
                             "ExportedOptions), or export the model without it"});
  }
  program.evaluation_problems.assign(evaluation_problems_.begin(), evaluation_problems_.end());
  program.was_exported_for_evaluation = dropout_is_off_ && !something_trains_;
}

Graph Compiler::compile_graph(const JsonCursor& graph, const std::vector<GraphInput>& inputs) {
  Scope scope;
  for (const GraphInput& input : inputs) {
    const int slot = add_value(input.name, input.kind, scope, graph["inputs"]);
    scope.graph.inputs.push_back(slot);
    if (!input.parameter.empty()) scope.parameters[slot] = input.parameter;
    if (!input.buffer.empty()) scope.buffers[slot] = input.buffer;
  }
  for (const JsonCursor& node : graph["nodes"].items()) compile_node(node, scope);
  const OperandReader reader(scope.slots, scope.kinds);
  for (const JsonCursor& output : graph["outputs"].items())
    scope.graph.outputs.push_back(reader.read(output));
  scope.graph.slots = static_cast<int>(scope.kinds.size());
  find_last_uses(scope.graph);
  return std::move(scope.graph);
}

std::vector<GraphInput> Compiler::inputs_of(const JsonCursor& graph,
                                            const std::vector<int>& operands,
                                            const Scope& outer) const {
  std::vector<GraphInput> inputs;
  for (const JsonCursor& input : graph["inputs"].items()) {
    const auto [tag, value] = input.alternative();
    const char* const key = tag == "as_tensor" ? "name" : "as_name";
    if (tag != "as_tensor" && kind_of_tag(tag) == ValueKind::tensor)
      input.fail(tag, "a tensor or a number");
    GraphInput read{value[key].text(), kind_of_tag(tag), "", ""};
    if (inputs.size() < operands.size()) {
      const int slot = operands[inputs.size()];
      if (outer.buffers.contains(slot)) read.buffer = outer.buffers.at(slot);
      if (outer.parameters.contains(slot)) read.parameter = outer.parameters.at(slot);
    }
    inputs.push_back(std::move(read));
  }
  return inputs;
}

void Compiler::compile_node(const JsonCursor& node, Scope& scope) {
  Instruction instruction;
  instruction.target = node["target"].text();
  if (const auto name = node.find("name")) instruction.name = name->text();
  instruction.module_path = module_path_of(node);
  const auto name = OperatorName::parse(instruction.target);
  if (symbol_function(instruction.target) != nullptr) {
    compile_symbol(node, instruction, scope);
  } else if (control_flow_named(instruction.target) != nullptr) {
    compile_control_flow(node, instruction, scope);
  } else if (!name) {
    refused_[instruction.target + ": LibTorch has no such operator"].insert(
        instruction.module_path);
  } else if (const auto reason = reason_for_refusal(*name, namespaces_)) {
    refused_[instruction.target + ": " + *reason].insert(instruction.module_path);
  } else if (name->base == "_assert_tensor_metadata") {
    // The check of the inputs has the same effect. Under autocast or after to() the types differ
    // from those in the file, so this check would fail.
    return;
  } else {
    compile_call(node, *name, instruction, scope);
  }
  add_outputs(node, instruction, scope);
  if (instruction.op) follow_aliases(*name, instruction, scope);
  scope.graph.code.push_back(std::move(instruction));
}

void Compiler::compile_symbol(const JsonCursor& node, Instruction& instruction,
                              const Scope& scope) const {
  instruction.action = Action::compute_symbol;
  instruction.symbol = symbol_function(instruction.target);
  const OperandReader reader(scope.slots, scope.kinds);
  for (const JsonCursor& input : node["inputs"].items()) {
    instruction.operands.push_back(reader.read(input["arg"]));
    // In some exports the names of a number and of a tensor have the same form.
    instruction.operands.back().wraps_number = false;
  }
  if (instruction.operands.size() != symbol_arity(instruction.target))
    node.fail(str(instruction.operands.size(), " arguments of ", instruction.target),
              std::to_string(symbol_arity(instruction.target)));
}

void Compiler::compile_control_flow(const JsonCursor& node, Instruction& instruction,
                                    const Scope& scope) {
  const ControlFlow& kind = *control_flow_named(instruction.target);
  const bool is_region = kind.action == Action::set_grad_mode || kind.action == Action::autocast;
  instruction.action = kind.action;
  const OperandReader reader(scope.slots, scope.kinds);
  std::vector<JsonCursor> graphs, settings;
  for (const JsonCursor& input : node["inputs"].items()) {
    const JsonCursor argument = input["arg"];
    if (argument.alternative().first == "as_graph")
      graphs.push_back(argument["as_graph"]["graph"]);
    else if (is_region && graphs.empty())
      settings.push_back(argument);
    else
      instruction.operands.push_back(reader.read(argument));
  }
  if (graphs.size() != kind.graphs)
    node.fail(str(graphs.size(), " graphs"), str(kind.graphs, " of ", instruction.target));
  if (kind.action == Action::set_grad_mode) {
    if (settings.size() != 1) node.fail("other settings", "whether gradients are enabled");
    instruction.grad_enabled = settings[0]["as_bool"].boolean();
  }
  if (kind.action == Action::autocast) {
    if (settings.size() != 4) node.fail("other settings", "device, type, enabled, cache");
    if (const auto dtype = settings[1].find("as_scalar_type"))
      instruction.autocast.dtype = read_scalar_type(*dtype);
    instruction.autocast.enabled = settings[2]["as_bool"].boolean();
    const auto cache = settings[3].find("as_bool");
    instruction.autocast.cache_enabled = !cache || cache->boolean();
  }
  if (!is_region && instruction.operands.size() != kind.operands)
    node.fail(str(instruction.operands.size(), " operands"), str(kind.operands));
  std::vector<int> passed;
  for (std::size_t i = kind.action == Action::branch ? 1 : 0; i < instruction.operands.size(); ++i)
    append_passed_slots(instruction.operands[i], passed);
  for (const JsonCursor& graph : graphs)
    instruction.graphs.push_back(
        std::make_shared<const Graph>(compile_graph(graph, inputs_of(graph, passed, scope))));
}

void Compiler::compile_call(const JsonCursor& node, const OperatorName& name,
                            Instruction& instruction, Scope& scope) {
  instruction.op = find_operator(name);
  const c10::FunctionSchema& schema = instruction.op->schema();
  std::map<std::string, JsonCursor> given;
  for (const JsonCursor& input : node["inputs"].items()) {
    if (!given.emplace(input["name"].text(), input["arg"]).second)
      input.fail("the argument " + input["name"].text() + " twice", "each argument once");
  }
  const OperandReader reader(scope.slots, scope.kinds);
  for (const c10::Argument& expected : schema.arguments()) {
    const auto found = given.find(expected.name());
    if (found != given.end()) {
      instruction.operands.push_back(reader.read(found->second, expected));
      given.erase(found);
      continue;
    }
    if (!expected.default_value())
      node.fail("no argument " + expected.name(), "the arguments of " + instruction.target);
    Operand defaulted;
    defaulted.constant = *expected.default_value();
    instruction.operands.push_back(std::move(defaulted));
  }
  if (!given.empty())
    node.fail("the argument " + given.begin()->first, "the arguments of " + instruction.target);
  if (name.space == "aten") instruction.check = kernel_check(name.base);
  set_mode(name, instruction);
}

void Compiler::set_mode(const OperatorName& name, Instruction& instruction) {
  const std::string argument = name.space == "aten" ? training_argument(name.base) : "";
  if (argument.empty()) {
    if (instruction.op->hasTag(at::Tag::nondeterministic_seeded))
      evaluation_problems_.insert("random numbers of " + instruction.target);
    return;
  }
  const auto index = instruction.op->schema().argumentIndexWithName(argument);
  if (!index) return;
  const std::size_t position = static_cast<std::size_t>(*index);
  const Operand& operand = instruction.operands[position];
  if (operand.kind != Operand::Kind::constant) {
    evaluation_problems_.insert("a computed argument " + argument + " of " + instruction.target);
    return;
  }
  if (name.base == "batch_norm" || name.base == "instance_norm") {
    const auto statistics = instruction.op->schema().argumentIndexWithName("running_mean");
    // Without running statistics, evaluation uses the statistics of the batch too.
    if (instruction.operands[static_cast<std::size_t>(*statistics)].kind == Operand::Kind::constant)
      return;
  }
  // The argument is None for a native_dropout that always trains.
  const bool is_boolean = !operand.constant.isDouble();
  something_trains_ |= is_constant_bool(operand, true) || operand.constant.isNone() ||
                       (!is_boolean && operand.constant.toDouble() > 0);
  dropout_is_off_ |=
      name.base.find("dropout") != std::string::npos && is_constant_bool(operand, false);
  instruction.mode = ModeArgument{position, is_boolean ? c10::IValue(false) : c10::IValue(0.0)};
}

void Compiler::add_outputs(const JsonCursor& node, Instruction& instruction, Scope& scope) const {
  for (const JsonCursor& json : node["outputs"].items()) {
    const auto [tag, value] = json.alternative();
    Output output;
    if (tag == "as_tensors") {
      output.is_list = true;
      for (const JsonCursor& item : value.items())
        output.slots.push_back(add_value(item["name"].text(), ValueKind::tensor, scope, item));
    } else if (tag == "as_tensor") {
      output.slots = {add_value(value["name"].text(), ValueKind::tensor, scope, value)};
    } else if (tag == "as_none") {
      output.slots = {kNoSlot};
    } else if (tag == "as_optional_tensor") {
      const auto tensor = value.find("as_tensor");
      output.slots = {tensor ? add_value((*tensor)["name"].text(), ValueKind::tensor, scope, value)
                             : kNoSlot};
    } else if (kind_of_tag(tag) != ValueKind::tensor) {
      output.slots = {add_value(value["as_name"].text(), kind_of_tag(tag), scope, value)};
    } else {
      json.fail(tag, "an output that is a tensor, a list of tensors or a number");
    }
    instruction.outputs.push_back(std::move(output));
  }
  if (instruction.op && instruction.outputs.size() > instruction.op->schema().returns().size())
    node.fail(str(instruction.outputs.size(), " outputs"),
              str(instruction.op->schema().returns().size(), " of ", instruction.target));
}

// Finds what the instruction changes in place, and views of the module's tensors.
void Compiler::follow_aliases(const OperatorName& name, Instruction& instruction, Scope& scope) {
  const c10::FunctionSchema& schema = instruction.op->schema();
  const bool returns_views =
      std::any_of(schema.returns().begin(), schema.returns().end(),
                  [](const c10::Argument& returned) { return returned.alias_info() != nullptr; });
  for (std::size_t i = 0; i < instruction.operands.size(); ++i) {
    const c10::AliasInfo* const alias = schema.arguments()[i].alias_info();
    if (alias == nullptr || instruction.operands[i].kind != Operand::Kind::slot) continue;
    const int slot = instruction.operands[i].slot;
    const auto buffer = scope.buffers.find(slot);
    const auto parameter = scope.parameters.find(slot);
    if (alias->isWrite() && parameter != scope.parameters.end())
      refused_[instruction.target + ": it changes the parameter " + parameter->second].insert(
          instruction.module_path);
    if (alias->isWrite() && buffer != scope.buffers.end() && !instruction.mode) {
      // Batch norm counts its batches in training only.
      if (name.base == "add_" && ends_with("." + buffer->second, ".num_batches_tracked"))
        instruction.is_skipped_in_evaluation = true;
      else
        evaluation_problems_.insert("the change of buffer " + buffer->second + " by " +
                                    instruction.target);
    }
    if (!returns_views) continue;
    for (const Output& output : instruction.outputs) {
      for (const int view : output.slots) {
        if (buffer != scope.buffers.end()) scope.buffers.emplace(view, buffer->second);
        if (parameter != scope.parameters.end()) scope.parameters.emplace(view, parameter->second);
      }
    }
  }
}

int Compiler::add_value(const std::string& name, ValueKind kind, Scope& scope,
                        const JsonCursor& place) const {
  const int slot = static_cast<int>(scope.kinds.size());
  if (!scope.slots.emplace(name, slot).second)
    place.fail("a second value with the name " + name, "each name once");
  scope.kinds.push_back(kind);
  return slot;
}

}  // namespace hasten::exported
