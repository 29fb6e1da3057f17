// File: exported/operators.h (internal)
// The operators that a program may call, and how they differ between training and evaluation.
//
//   const OperatorName name = OperatorName::parse("torch.ops.aten.add.Tensor").value();
//   if (const auto refusal = reason_for_refusal(name, {"my_library"})) report(*refusal);
//   const c10::OperatorHandle op = find_operator(name).value();
//
// A file names its operators, and comes from anywhere. LibTorch has operators that open files or
// replace the memory of a tensor, so only public functions of aten, some private ones that exports
// contain, and operators of namespaces that the caller allows may be called. Thread rule: any
// thread. Throws nothing but std::bad_alloc.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <vector>

namespace hasten::exported {

struct OperatorName {
  std::string space, base, overload;  // "aten", "add_", "Tensor"; the default overload is empty

  // Reads a target of a graph. Returns nothing if it names no operator.
  static std::optional<OperatorName> parse(const std::string& target);
};

// Returns why a program may not call the operator, or nothing if it may. `namespaces` are allowed
// in addition to aten.
std::optional<std::string> reason_for_refusal(const OperatorName& name,
                                              const std::vector<std::string>& namespaces);

// Returns the operator if this process has it.
std::optional<c10::OperatorHandle> find_operator(const OperatorName& name);

// Returns the name of the argument that says whether the operator trains; empty: it has none.
// The argument of scaled_dot_product_attention is a probability, all others are boolean.
std::string training_argument(const std::string& base);

}  // namespace hasten::exported
