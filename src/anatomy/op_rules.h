// File: anatomy/op_rules.h (internal)
// A table of what each operator computes: its group, a formula that gives its floating-point
// operations from the call's shapes and options, and the bytes that it moves.
//
// A multiplication with an addition counts as two operations; any other arithmetic on one element,
// including an exponential, counts as one. The bias that a product or a convolution adds is not
// counted. An operator with a formula is counted as a whole, including the operators that it calls.
// If the formula does not apply to a call, the call is reported as not counted. Thread rule: any
// thread.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hasten/anatomy/detail/component.h"

namespace hasten::anatomy {

struct TensorShape {
  std::vector<std::int64_t> sizes;
  std::int64_t numel = 0;  // for a sparse tensor: the numbers that it stores
  std::int64_t bytes = 0;  // in memory: an expanded dimension counts once
  at::ScalarType type = at::kFloat;
};

// The shapes and options of one call. Arguments are numbered as in the operator's schema.
struct CallShapes {
  // The tensors of all arguments in order. The tensors of a list are consecutive.
  std::vector<TensorShape> inputs;
  // By argument: the index of its first tensor in `inputs`. The last entry is the size of `inputs`.
  std::vector<std::size_t> first;
  // By argument: its value if it is not a tensor.
  std::vector<c10::IValue> values;
  std::vector<TensorShape> outputs;

  // Returns the number of an argument's tensors, or 0 if an optional argument is missing.
  std::size_t count(std::size_t argument) const;
  // Returns the first tensor of an argument, or an empty shape if it is missing.
  const TensorShape& input(std::size_t argument) const;
};

// Returns nullopt if the formula does not apply to the call.
using Formula = std::optional<double> (*)(const CallShapes&);

struct OpRule {
  OperationGroup group = OperationGroup::element_wise;
  Formula flops = nullptr;  // null if the operator counts as zero operations
  // The bytes read and written. Null means all tensors that the operator reads or writes.
  Formula reads = nullptr, writes = nullptr;
  bool overwrites = false;       // the first argument is written but not read
  bool supports_sparse = false;  // the formula also holds for sparse tensors
};

// Returns null if the operator is not in the table. An overload may have a separate rule.
const OpRule* find_rule(std::string_view name, std::string_view overload = "");
// The same for a device that has kernels for aten::linear. Other devices compose it of other
// operators.
const OpRule* find_rule_with_linear_kernel(std::string_view name, std::string_view overload = "");

// Returns the operations of one call by its rule. A product of complex numbers counts four times as
// much as a real one; other arithmetic on complex numbers gives nullopt.
std::optional<double> flops_of(const OpRule& rule, const CallShapes& call);

// Returns every name in the table with its rule, for the documentation.
std::vector<std::pair<std::string, OpRule>> all_rules();

}  // namespace hasten::anatomy
