// File: anatomy/op_rules.h (internal)
// What each operator computes: its group, its floating-point operations as a formula of shapes, and
// how it touches its arguments. One table.
//
// A multiplication with an addition counts as two operations; any other arithmetic on one element,
// an exponential too, as one. An operator with a formula is counted as a whole, whatever it calls
// inside. Thread rule: any thread.
#pragma once

#include <ATen/core/function_schema.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hasten/anatomy/component.h"

namespace hasten::anatomy {

// The tensors of one call, in the order of the arguments; those of lists stand side by side.
struct TensorShape {
  std::vector<std::int64_t> sizes;
  std::int64_t numel = 0;
  std::int64_t bytes = 0;
};
struct CallShapes {
  std::vector<TensorShape> inputs;  // of missing tensors: sizes {}, numel 0
  std::vector<TensorShape> outputs;
  std::int64_t first_list = 0;  // tensors in the first list argument
};

using Formula = double (*)(const CallShapes&);

struct OpRule {
  OperationGroup group = OperationGroup::element_wise;
  Formula flops = nullptr;  // null: zero by rule
  // What is read of the inputs: all bytes, or as many as are written (a lookup in a table).
  bool reads_as_written = false;
};

// Nothing where the operator is not in the table.
const OpRule* find_rule(std::string_view name);
// Where the backend has kernels for what other devices put together, as a TPU's has.
const OpRule* find_rule_on_tpu(std::string_view name);

// Every name in the table with its group, for the documentation.
std::vector<std::pair<std::string, OpRule>> all_rules();

}  // namespace hasten::anatomy
