// File: anatomy/shape_rules.h (internal)
// The result shapes of operators that have Meta kernels only in Python. Arguments and results are
// on the Meta device. Thread rule: pure functions.
#pragma once

#include <ATen/core/stack.h>

#include <string_view>
#include <vector>

namespace hasten::anatomy {

using ShapeRule = std::vector<c10::IValue> (*)(const std::vector<c10::IValue>& arguments);

// Returns null if there is no rule. LibTorch's own Meta kernel then gives the shapes. `overload` is
// the name of the operator's overload, which may be empty.
ShapeRule find_shape_rule(std::string_view name, std::string_view overload);

}  // namespace hasten::anatomy
