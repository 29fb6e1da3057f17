// File: exported/recurrent_checks.h (internal)
// Checks the tensors of an LSTM, GRU or RNN. LibTorch's kernels for them read past the end of
// weights of wrong shapes, and a file may contain such weights.
//
//   if (const auto gates = recurrent_gates("lstm")) check_recurrent(schema, *gates, stack);
//
// Throws DataError "exported.graph". Thread rule: pure functions.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>
#include <string>

namespace hasten::exported {

// The number of gates of a recurrent operator; nothing for another operator.
std::optional<std::int64_t> recurrent_gates(const std::string& base);

// Checks the operands of a call, which are on the stack.
void check_recurrent(const c10::FunctionSchema& schema, std::int64_t gates,
                     const torch::jit::Stack& stack);

}  // namespace hasten::exported
