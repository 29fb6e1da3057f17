// File: anatomy/op_rules.h (internal)
// What each operator computes: its group, its floating-point operations as a formula of the call's
// shapes and options, and the bytes it moves. One table.
//
// A multiplication with an addition counts as two operations; any other arithmetic on one element,
// an exponential too, as one. The bias that a product or a convolution adds is part of it and not
// counted. An operator with a formula is counted as a whole, whatever it calls inside. Where the
// formula does not apply to a call, the call is reported as not counted. Thread rule: any thread.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hasten/anatomy/component.h"

namespace hasten::anatomy {

struct TensorShape {
  std::vector<std::int64_t> sizes;
  std::int64_t numel = 0;  // of a sparse tensor: the numbers that it stores
  std::int64_t bytes = 0;  // that exist: an expanded dimension counts once
  at::ScalarType type = at::kFloat;
};

// One call. Arguments are numbered as in the operator's schema.
struct CallShapes {
  std::vector<TensorShape> inputs;  // the tensors of the arguments; those of a list side by side
  std::vector<std::size_t> first;   // by argument: its first tensor in `inputs`, and one past all
  std::vector<c10::IValue> values;  // by argument: what is not a tensor
  std::vector<TensorShape> outputs;

  // An argument's tensors; none where an optional one is missing.
  std::size_t count(std::size_t argument) const;
  // Its first tensor; an empty shape where it is missing.
  const TensorShape& input(std::size_t argument) const;
};

// Nothing: the formula does not know this call.
using Formula = std::optional<double> (*)(const CallShapes&);

struct OpRule {
  OperationGroup group = OperationGroup::element_wise;
  Formula flops = nullptr;  // null: zero by rule
  // The bytes moved; null: all tensors that the operator reads, and all that it writes.
  Formula reads = nullptr, writes = nullptr;
  bool overwrites = false;    // the first argument is written and not read
  bool takes_sparse = false;  // the formula is right for sparse tensors too
};

// Nothing where the operator is not in the table. An overload may have a rule of its own.
const OpRule* find_rule(std::string_view name, std::string_view overload = "");
// Where the backend has kernels for what other devices put together, as a TPU's has.
const OpRule* find_rule_on_tpu(std::string_view name, std::string_view overload = "");

// The operations of one call by its operator's rule. Complex numbers: a complex product has four
// times the operations of a real one; other arithmetic on them is not counted.
std::optional<double> flops_of(const OpRule& rule, const CallShapes& call);

// Every name in the table with its group, for the documentation.
std::vector<std::pair<std::string, OpRule>> all_rules();

}  // namespace hasten::anatomy
