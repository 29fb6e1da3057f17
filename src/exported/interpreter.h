// File: exported/interpreter.h (internal)
// Runs a program, one instruction after the other, through LibTorch's dispatcher.
//
//   const Interpreter interpreter({.training = true, .device = at::kCPU});
//   std::vector<c10::IValue> outputs = interpreter.run(program.graph, std::move(inputs));
//
// The dispatcher sees the same calls as from C++ or from Python, so autograd, autocast and
// observers of operators work as usual. A value is released after its last use, so a forward pass
// needs no more memory than handwritten code. Errors of operators keep their type and get the name
// of the node and of its module. Thread rule: immutable; several threads may run one program at
// once.
#pragma once

#include <ATen/core/stack.h>
#include <c10/core/Device.h>

#include <vector>

#include "exported/program.h"

namespace hasten::exported {

// The settings that differ between the calls of a program.
struct RunContext {
  bool training = true;
  at::Device device = at::kCPU;  // replaces the device of the export
};

class Interpreter {
 public:
  explicit Interpreter(RunContext context) : context_(context) {}

  std::vector<c10::IValue> run(const Graph& graph, std::vector<c10::IValue> inputs) const;

 private:
  using Values = std::vector<c10::IValue>;

  void execute(const Instruction& instruction, Values& slots, torch::jit::Stack& stack) const;
  // Replaces the operands on the stack with the results.
  void run_control_flow(const Instruction& instruction, torch::jit::Stack& stack) const;
  Values run_under_autocast(const Instruction& instruction, Values inputs) const;
  Values run_recomputed(const Instruction& instruction, Values inputs) const;
  Values run_loop(const Instruction& instruction, Values carried, const Values& extra) const;
  // Runs the body once for each row of `mapped`. The body gets the carried values, the row and
  // `extra`. The carried values are `carried` for the first row, and later the values that the
  // previous run returned. Returns the last carried values, followed by each other result of the
  // body with its values for all rows.
  Values run_rows(const Instruction& instruction, Values carried, const Values& mapped,
                  const Values& extra) const;
  c10::IValue value_of(const Operand& operand, const Values& slots) const;

  RunContext context_;
};

}  // namespace hasten::exported
