// Regions of a program that change buffers or views of them: the second run leaves the buffers as
// the first run left them, even if the change is inside autocast or another graph of the region.
#include "exported/recomputed_graph.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <vector>

#include "exported/interpreter.h"

namespace exported_recomputed_graph_test {

using namespace hasten;
using namespace hasten::exported;
using c10::IValue;

namespace {

Operand slot(int number) {
  Operand operand;
  operand.kind = Operand::Kind::slot;
  operand.slot = number;
  return operand;
}

Operand constant(IValue value) {
  Operand operand;
  operand.constant = std::move(value);
  return operand;
}

Instruction operator_of(const char* name, const char* overload, std::vector<Operand> operands,
                        int output) {
  Instruction instruction;
  instruction.module_path = "layer.0";
  instruction.op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  instruction.operands = std::move(operands);
  instruction.outputs = {{.slots = {output}}};
  return instruction;
}

// Slot 3 becomes the batch norm of slot 0 with the statistics in slots 1 and 2.
Instruction batch_norm(const std::string& path) {
  Instruction norm;
  norm.module_path = path;
  norm.op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::batch_norm", "");
  norm.operands = {slot(0),        constant(IValue()), constant(IValue()), slot(1),        slot(2),
                   constant(true), constant(0.1),      constant(1e-5),     constant(false)};
  norm.outputs = {{.slots = {3}}};
  return norm;
}

Graph graph_of(Instruction instruction) {
  Graph graph;
  graph.slots = 4;
  graph.inputs = {0, 1, 2};
  graph.code = {std::move(instruction)};
  graph.outputs = {slot(3)};
  return graph;
}

Instruction wrap(Action action, const Graph& inner, std::vector<Operand> operands) {
  Instruction outer;
  outer.action = action;
  outer.module_path = "layer.0";
  outer.autocast = {.dtype = at::kBFloat16};
  outer.operands = std::move(operands);
  outer.outputs = {{.slots = {3}}};
  outer.graphs.assign(action == Action::branch ? 2 : 1, std::make_shared<const Graph>(inner));
  return outer;
}

// Returns the statistics and the gradient of the input after a forward and a backward pass.
std::vector<at::Tensor> run_graph(const Graph& graph) {
  torch::manual_seed(1);
  const at::Tensor x = at::randn({6, 3}).requires_grad_(), mean = at::zeros({3}),
                   variance = at::ones({3});
  const Interpreter interpreter({true, at::kCPU});
  interpreter.run(graph, {x, mean, variance})[0].toTensor().exp().sum().backward();
  return {mean, variance, x.grad()};
}

}  // namespace

TEST_CASE("recomputed graph: a region knows the buffers that it changes, also in inner graphs") {
  const Graph inner = graph_of(batch_norm("layer.0.norm"));
  const std::vector<Operand> all = {slot(0), slot(1), slot(2)};
  Operand list;
  list.kind = Operand::Kind::tensors;
  list.items = all;
  std::vector<Operand> condition = {constant(true)};
  condition.insert(condition.end(), all.begin(), all.end());
  for (const Graph& graph : {inner, graph_of(wrap(Action::set_grad_mode, inner, all)),
                             graph_of(wrap(Action::autocast, inner, all)),
                             graph_of(wrap(Action::branch, inner, condition)),
                             graph_of(wrap(Action::branch, inner, {constant(true), list}))}) {
    const Graph recomputed = with_recomputation(graph, {"layer.0"}, CheckpointOptions{});
    REQUIRE(recomputed.code.size() == 1);
    REQUIRE((recomputed.code[0].action == Action::recompute));
    CHECK(recomputed.code[0].mutated_operands == std::vector<std::size_t>{1, 2});
    const std::vector<at::Tensor> expected = run_graph(graph), found = run_graph(recomputed);
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK(at::equal(expected[i], found[i]));
  }
}

TEST_CASE("recomputed graph: a region that changes a view of a buffer changes the buffer once") {
  // Slot 1 is a buffer. The region adds 1 to its first element, and returns the square of slot 0.
  Graph plain;
  plain.slots = 5;
  plain.inputs = {0, 1};
  plain.code = {
      operator_of("aten::select", "int", {slot(1), constant(0), constant(0)}, 2),
      operator_of("aten::add_", "Tensor", {slot(2), constant(at::ones({})), constant(1)}, 3),
      operator_of("aten::mul", "Tensor", {slot(0), slot(0)}, 4)};
  plain.outputs = {slot(4)};
  Graph nested;
  nested.slots = 4;
  nested.inputs = {0, 1};
  nested.code = {wrap(Action::set_grad_mode, plain, {slot(0), slot(1)})};
  nested.outputs = {slot(3)};
  for (const Graph& each : {plain, nested}) {
    const Graph recomputed = with_recomputation(each, {"layer.0"}, CheckpointOptions{});
    REQUIRE(recomputed.code.size() == 1);
    CHECK(recomputed.code[0].mutated_operands.empty());
    // The inputs of a region are in the order in which its instructions read them.
    const std::vector<std::size_t>& views = recomputed.code[0].mutated_views;
    REQUIRE(views.size() == 1);
    CHECK(recomputed.code[0].operands[views[0]].slot == 1);
    const at::Tensor x = at::full({2}, 3.0).requires_grad_(), buffer = at::zeros({2});
    const Interpreter interpreter({true, at::kCPU});
    interpreter.run(recomputed, {x, buffer})[0].toTensor().sum().backward();
    CHECK(at::equal(buffer, torch::tensor({1.0F, 0.0F})));
    CHECK(at::equal(x.grad(), at::full({2}, 6.0)));
  }
}

}  // namespace exported_recomputed_graph_test
