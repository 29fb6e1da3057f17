// File: exported/program.h (internal)
// An exported program as instructions that the interpreter runs. A program is made once when its
// file is loaded, is immutable, and has no tensors: parameters and buffers belong to the module.
//
//   const Program program = read_program(archive, "model");      // exported/program_reader.h
//   Interpreter(program, context).run(program.graph, inputs);    // exported/interpreter.h
//
// Values are in numbered slots. Operators, their handles and constant arguments are resolved when
// the program is made. Thread rule: immutable.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "exported/input_checks.h"
#include "exported/kernel_checks.h"
#include "exported/schema_types.h"
#include "exported/symbolic.h"
#include "hasten/autograd/checkpoint.h"

namespace hasten::exported {

// The number of a slot for an output that nothing reads.
inline constexpr int kNoSlot = -1;

// An argument of an instruction.
struct Operand {
  enum class Kind {
    constant,
    slot,
    tensors,           // a list of slots
    optional_tensors,  // a list of slots and of missing tensors
    integers,          // a list of slots and constants
    device,            // the device of the module at the time of the call
    cudnn_flag,        // whether the process allows cuDNN
  };
  Kind kind = Kind::constant;
  c10::IValue constant;
  int slot = kNoSlot;
  std::vector<Operand> items;
  // True if a number in the slot becomes a tensor that does not take part in type promotion, as in
  // Python's argument parser.
  bool wraps_number = false;
  // True if an integer in the slot becomes a double.
  bool to_double = false;
};

enum class Action {
  call_operator,
  compute_symbol,
  set_grad_mode,  // runs graphs[0] with or without gradients
  autocast,       // runs graphs[0] under autocast
  branch,         // runs graphs[0] or graphs[1]
  loop,           // runs graphs[1] while graphs[0] returns true
  map,            // runs graphs[0] for each row
  scan,           // like map, but also passes values from one row to the next
  recompute,      // runs graphs[0], and runs it again in the backward pass
};

// One output of an instruction: a value, or a list with one slot for each entry.
struct Output {
  std::vector<int> slots;
  bool is_list = false;
};

// The argument by which an operator differs between training and evaluation.
struct ModeArgument {
  std::size_t index = 0;
  c10::IValue in_evaluation;
};

struct AutocastSettings {
  std::optional<at::ScalarType> dtype;
  bool enabled = true, cache_enabled = true;
};

struct Graph;

struct Instruction {
  Action action = Action::call_operator;
  std::string target, name;
  // The path of the module that made the node in its forward(), such as "encoder.layer.0". It is
  // used in messages.
  std::string module_path;
  std::optional<c10::OperatorHandle> op;
  SymbolFunction symbol = nullptr;
  std::vector<Operand> operands;
  std::vector<Output> outputs;
  std::vector<int> frees;       // slots that are not used after this
  KernelCheck check = nullptr;  // checks operands that the kernel trusts
  std::optional<ModeArgument> mode;
  // True if the instruction counts batches, so that evaluation skips it.
  bool is_skipped_in_evaluation = false;
  std::vector<std::shared_ptr<const Graph>> graphs;
  bool grad_enabled = true;
  AutocastSettings autocast;
  // The options of recompute, and the indices of the operands that graphs[0] changes, and of those
  // of which it changes views, or perhaps copies.
  CheckpointOptions checkpoint;
  std::vector<std::size_t> mutated_operands, mutated_views;
};

struct Graph {
  int slots = 0;
  std::vector<int> inputs;
  std::vector<Instruction> code;
  std::vector<Operand> outputs;
};

// An input of a program that is a tensor of the module.
struct StateInput {
  enum class Kind { parameter, buffer, constant };
  Kind kind = Kind::parameter;
  std::string name;  // Python's name: "encoder.weight"
  TensorMeta meta;
};

struct Program {
  std::string file, name;
  // The inputs of the graph in order: the module's tensors, and the caller's values.
  std::vector<StateInput> state;
  InputChecks user_inputs;
  std::vector<int> user_position, state_position;  // positions among the graph's inputs
  std::vector<std::string> output_names;
  std::vector<TensorMeta> outputs;  // with the names of output_names
  // The tables of embeddings, and the parameters of layer norms.
  std::set<std::string> embedding_tables, layer_norm_parameters;
  // The parameters by which inputs are multiplied; true if the shape is [in, out].
  std::map<std::string, bool> linear_weights;
  // The number of rows of the embedding table for each input that is looked up in one.
  std::map<std::string, std::int64_t> vocabularies;
  Graph graph;
  // The reasons why evaluation mode would be wrong; empty if there are none.
  std::vector<std::string> evaluation_problems;
  // True if the program has dropout that was off when the program was exported.
  bool was_exported_for_evaluation = false;
};

}  // namespace hasten::exported
