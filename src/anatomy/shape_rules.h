// File: anatomy/shape_rules.h (internal)
// Shapes of results for operators whose Meta kernels exist in Python only. Arguments and results
// are on the Meta device.
#pragma once

#include <ATen/core/stack.h>

#include <string_view>
#include <vector>

namespace hasten::anatomy {

using ShapeRule = std::vector<c10::IValue> (*)(const std::vector<c10::IValue>& arguments);

// Null: LibTorch's own Meta kernel is to be asked.
ShapeRule find_shape_rule(std::string_view name);

}  // namespace hasten::anatomy
