// File: exported/operators.h (internal)
// The operators that a program may call, and how they differ between training and evaluation.
//
//   const OperatorName name = OperatorName::parse("torch.ops.aten.add.Tensor").value();
//   if (const auto refusal = reason_for_refusal(name, {"my_library"})) report(*refusal);
//   const c10::OperatorHandle op = find_operator(name).value();
//
// The file names the operators and may come from anyone. LibTorch has operators that open files or
// replace the memory of a tensor. Therefore a program may call only public functions of aten, some
// private ones that exports contain, and operators of namespaces that the caller allows. Thread
// rule: any thread. Throws nothing but std::bad_alloc.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <vector>

namespace hasten::exported {

struct OperatorName {
  std::string space, base, overload;  // "aten", "add_", "Tensor"; the default overload is empty

  // Reads a target of a graph. Returns nullopt if it does not name an operator.
  static std::optional<OperatorName> parse(const std::string& target);
};

// Returns why a program may not call the operator, or nullopt if it may. `namespaces` are allowed
// in addition to aten.
std::optional<std::string> reason_for_refusal(const OperatorName& name,
                                              const std::vector<std::string>& namespaces);

// Returns the operator, or nullopt if this process does not have it.
std::optional<c10::OperatorHandle> find_operator(const OperatorName& name);

// Returns the name of the argument that selects training or evaluation, or an empty string if the
// operator has none. For scaled_dot_product_attention the argument is a probability. For all other
// operators it is a boolean.
std::string training_argument(const std::string& base);

}  // namespace hasten::exported
