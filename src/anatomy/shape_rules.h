// File: anatomy/shape_rules.h (internal)
// The shapes of results of operators whose Meta kernels exist only in Python. Arguments and results
// are on the Meta device. Thread rule: pure functions.
#pragma once

#include <ATen/core/stack.h>

#include <string_view>
#include <vector>

namespace hasten::anatomy {

using ShapeRule = std::vector<c10::IValue> (*)(const std::vector<c10::IValue>& arguments);

// Returns null if there is no rule; then LibTorch's own Meta kernel gives the shapes.
ShapeRule find_shape_rule(std::string_view name);

}  // namespace hasten::anatomy
