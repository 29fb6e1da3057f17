// File: exported/compiler.h (internal)
// Turns the JSON of a graph into the instructions of a program.
//
//   Compiler compiler("model.pt2", namespaces);
//   Program program = ...;                       // its inputs are known already
//   compiler.compile(json["graph_module"]["graph"], graph_inputs, program);
//
// Every argument is checked against the operator's schema, so that a wrong file is refused here and
// not by an assertion in a kernel. All operators that cannot be called are reported together, with
// the modules that call them. Throws DataError "exported.graph", "exported.operator". Thread rule:
// one thread.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "exported/json_cursor.h"
#include "exported/operands.h"
#include "exported/operators.h"
#include "exported/program.h"

namespace hasten::exported {

// An input of the outermost graph.
struct GraphInput {
  std::string name;
  ValueKind kind = ValueKind::tensor;
  std::string parameter, buffer;  // Python's name, if the input is a parameter or a buffer
};

class Compiler {
 public:
  Compiler(std::string file, std::vector<std::string> namespaces)
      : file_(std::move(file)), namespaces_(std::move(namespaces)) {}

  // Fills in the program's graph, and the properties that concern evaluation.
  void compile(const JsonCursor& graph, const std::vector<GraphInput>& inputs, Program& program);

 private:
  // The values of one graph.
  struct Scope {
    Graph graph;
    std::map<std::string, int> slots;  // by name
    std::vector<ValueKind> kinds;      // by slot
    // The module's tensors, and views of them, with Python's names.
    std::map<int, std::string> buffers, parameters;
  };

  void add_graph_inputs(const std::vector<GraphInput>& inputs, Scope& scope);
  // Reads the inputs of a nested graph. `operands` are the values that are passed to it.
  std::vector<GraphInput> inputs_of(const JsonCursor& graph, const std::vector<int>& operands,
                                    const Scope& outer) const;
  Graph compile_graph(const JsonCursor& graph, const std::vector<GraphInput>& inputs);
  void compile_node(const JsonCursor& node, Scope& scope);
  void compile_symbol(const JsonCursor& node, Instruction& instruction, const Scope& scope) const;
  void compile_control_flow(const JsonCursor& node, Instruction& instruction, const Scope& scope);
  void compile_call(const JsonCursor& node, const OperatorName& name, Instruction& instruction,
                    Scope& scope);
  void add_outputs(const JsonCursor& node, Instruction& instruction, Scope& scope) const;
  void follow_aliases(const OperatorName& name, Instruction& instruction, Scope& scope);
  void set_mode(const OperatorName& name, Instruction& instruction);

  int add_value(const std::string& name, ValueKind kind, Scope& scope,
                const JsonCursor& place) const;

  std::string file_;
  std::vector<std::string> namespaces_;
  // "operator: reason", with the paths of the modules that call it.
  std::map<std::string, std::set<std::string>> refused_;
  std::set<std::string> evaluation_problems_;
  bool dropout_is_off_ = false, something_trains_ = false;
};

}  // namespace hasten::exported
