// File: exported/symbolic.h (internal)
// Arithmetic of a program with sizes and other numbers, which are not tensors.
//
//   if (SymbolFunction add = symbol_function("_operator.add")) result = add({left, right});
//
// Functions throw DataError "exported.graph" for wrong arguments and for a division by zero. Thread
// rule: pure functions. Source: Python's module operator, and torch.sym_*.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace hasten::exported {

using SymbolFunction = c10::IValue (*)(const std::vector<c10::IValue>& arguments);

// Returns the function with this name, or null if there is none.
SymbolFunction symbol_function(const std::string& target);
// Returns the number of arguments of the function.
std::size_t symbol_arity(const std::string& target);

}  // namespace hasten::exported
